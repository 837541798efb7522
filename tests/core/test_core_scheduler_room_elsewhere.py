"""Conversations that fill the KV cache of one engine, while another has room: both have room for six
conversations of 1,000 tokens that share the first 400."""

from core_values import discovered, facts, fleet, offer_all, placed, request, text

from gateway.core.request import Request
from gateway.core.scheduler import Scheduler

SYSTEM = text(400, "system")


def turn(key: int, conversation: str, system: bytes = SYSTEM) -> Request:
    return request(key, system + text(600, conversation))


def one_full_engine() -> Scheduler:
    """Six conversations run on a; b has nothing to do."""
    scheduler = fleet("a", "b", slots=8)
    for name in "ab":
        discovered(scheduler, name, facts(8, kv_tokens=4096))
    offer_all(scheduler, [turn(1, "c1")])
    scheduler.first_token(1, 0.5)
    scheduler.drain("b", True, 0.5)
    offer_all(scheduler, [turn(key, f"c{key}") for key in (2, 3, 4, 5, 6)], 1.0)
    for key in (2, 3, 4, 5, 6):
        scheduler.first_token(key, 2.0)
    scheduler.drain("b", False, 2.0)
    assert len(scheduler.engines["a"].leases) == 6
    return scheduler


def test_a_new_conversation_goes_to_the_engine_that_has_room() -> None:
    assert placed(one_full_engine().offer(turn(7, "c7", text(400, "another system")), 3.0)) == [(7, "b")]


def test_one_that_shares_what_the_full_engine_holds_does_not_wait_beside_the_idle_one() -> None:
    scheduler = one_full_engine()
    now = 3.0
    grants = placed(scheduler.offer(turn(7, "c7"), now))
    while not grants and now < 30.0:
        now += 1.0
        grants = placed(scheduler.tick(now))
    assert grants == [(7, "b")]
