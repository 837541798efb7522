"""What an engine is found to run at once, from when its streams start and from its own reports."""

from itertools import count

import pytest
from core_values import engine, usage

from gateway.core.caps import STREAMS_HELD
from gateway.core.engine import Engine, Facts, LoadReport, SlotSource
from gateway.core.request import Usage


class Served:
    """An engine that runs `runs` streams at once, in order, each for 2 s but for its prefill of 0.1 s.

    All prompts have 100 tokens, so that its pace is 1,000 tokens/s once the first has ended.
    """

    def __init__(self, a: Engine, runs: int, in_flight: int) -> None:
        self.a, self.runs, self.now = a, runs, 0.0
        self.keys = count(1)
        self.waiting: list[int] = []
        self.running: list[int] = []
        self.inside_s: list[float | None] = []
        self.grant()
        self.start()
        self.now = 1.0
        self.end()
        for _ in range(in_flight):
            self.grant()
        for _ in range(runs):
            self.start()

    def grant(self, *, stream: bool = True) -> None:
        key = next(self.keys)
        self.a.lease(key, 1, 100, self.now, prompt_tokens=100, stream=stream)
        self.waiting.append(key)

    def start(self, *, tells: bool = True) -> None:
        self.now += 0.1
        self.running.append(self.waiting.pop(0))
        if tells:
            self.inside_s.append(self.a.first_token(self.running[-1], self.now))

    def end(self, place: int = 0) -> None:
        lease = self.a.release(self.running.pop(place), self.now)
        self.a.learn(lease, usage(100, 0), self.now)

    def turn(self) -> None:
        """The oldest ends after 2 s, the next one starts, another is granted."""
        self.now += 2.0
        self.end()
        self.start()
        self.grant()


def report(at: float, running: int, waiting: int, kv_usage: float | None = None) -> LoadReport:
    return LoadReport(asked_at=at, running=running, waiting=waiting, kv_usage=kv_usage)


# From streams


def test_a_cap_is_inferred_once_streams_were_held_up_at_it_often_enough() -> None:
    served = Served(engine(slots=16), runs=2, in_flight=5)
    for _ in range(STREAMS_HELD - 1):
        served.turn()
    assert served.a.caps.inferred is None
    served.turn()
    assert served.a.caps.inferred == 2
    assert (served.a.slots, served.a.slots_source) == (16, SlotSource.DISCOVERED)


def test_nothing_is_inferred_where_nobody_waits_inside() -> None:
    served = Served(engine(slots=16), runs=2, in_flight=2)
    for _ in range(20):
        served.now += 2.0
        served.end()
        served.grant()
        served.start()
    assert served.a.caps.inferred is None


def test_a_wait_that_the_prompts_before_it_explain_is_none() -> None:
    a = engine(slots=16)
    a.lease(1, 1, 1000, 0.0, stream=True)
    a.first_token(1, 1.0)
    a.learn(a.release(1, 2.0), usage(1000, 0), 2.0)
    for key in range(2, 40):
        a.lease(key, 1, 1000, 3.0, stream=True)
    for key in range(2, 32):
        # One prefill after another, and an end before each start.
        a.first_token(key, key + 2.0)
        if key > 3:
            a.release(key - 2, key + 2.9)
    assert a.caps.inferred is None


def test_long_prompts_say_nothing_while_the_pace_of_such_is_unknown() -> None:
    served = Served(engine(slots=16), runs=2, in_flight=2)
    a = served.a
    for key in range(100, 112):
        a.lease(key, 1, 60_000, served.now, stream=True)
    for key in range(100, 110):
        served.now += 30.0
        a.release(key - 2 if key > 101 else served.running.pop(), served.now - 0.1)
        a.first_token(key, served.now)
    assert a.caps.inferred is None


def test_starts_that_follow_no_end_of_ours_speak_of_others() -> None:
    served = Served(engine(slots=16), runs=2, in_flight=5)
    for _ in range(STREAMS_HELD - 1):
        served.turn()
    for _ in range(4):
        served.now += 2.0
        served.end()
        served.now += 1.0
        served.start()
        served.grant()
        assert served.inside_s[-1] is None
    for _ in range(4):
        served.turn()
    assert served.a.caps.inferred is None


def test_streams_say_nothing_of_the_cap_while_slots_cool_or_others_use_the_engine() -> None:
    cooling = Served(engine(slots=16), runs=2, in_flight=5)
    foreign = Served(engine(slots=16), runs=2, in_flight=5)
    foreign.a.foreign = 1
    for _ in range(20):
        cooling.a.cool(1, cooling.now)
        cooling.turn()
        cooling.a.expire(cooling.now + 9.0)
        foreign.turn()
    assert (cooling.a.caps.inferred, foreign.a.caps.inferred) == (None, None)


def test_requests_that_tell_no_first_token_count_where_they_stand_in_line() -> None:
    served = Served(engine(slots=16), runs=2, in_flight=5)
    served.grant(stream=False)
    for turn in range(16):
        served.now += 2.0
        served.end()
        served.start(tells=served.a.leases[served.waiting[0]].is_stream)
        served.grant(stream=turn % 3 > 0)
    assert served.a.caps.inferred == 2


def test_more_that_run_at_once_raise_an_inferred_cap() -> None:
    served = Served(engine(slots=16), runs=2, in_flight=5)
    for _ in range(STREAMS_HELD):
        served.turn()
    served.start()
    assert served.a.caps.inferred == 3
    served.start()
    assert served.a.caps.inferred == 4


def test_an_inferred_cap_is_dropped_when_starts_show_more_in_line() -> None:
    a = engine(slots=16)
    a.caps.proved(2)
    for key in (1, 2):
        a.lease(key, 1, 100, 0.0)
    for key in (3, 4):
        a.lease(key, 1, 100, 0.0, stream=True)
    a.first_token(3, 0.1)
    assert a.caps.inferred == 2
    a.first_token(4, 0.1)
    assert a.caps.inferred is None


def test_one_that_overtakes_counts_among_those_that_produce() -> None:
    a = engine(slots=16)
    a.caps.proved(1)
    for key in (1, 2, 3):
        a.lease(key, 1, 100, 0.0, stream=True)
    a.first_token(1, 0.1)
    a.first_token(3, 0.2)
    assert a.caps.inferred == 2


def test_one_that_overtakes_says_nothing_and_its_end_brings_nobody_forward() -> None:
    a = engine(slots=16)
    for key in (1, 2, 3):
        a.lease(key, 1, 100, 0.0, stream=True)
    a.first_token(1, 0.1)
    a.first_token(3, 0.2)
    a.release(3, 0.3)
    assert a.leases[2].overtaken == 1
    a.lease(4, 1, 100, 0.4, stream=True)
    assert a.leases[4].place == 4


def test_a_stream_nobody_asked_for_counts_as_one_from_then_on() -> None:
    a = engine(slots=4)
    a.lease(1, 1, 100, 0.0)
    assert a.caps.untold == 1
    a.first_token(1, 0.1)
    assert (a.caps.untold, a.caps.producing) == (0, 1)
    a.release(1, 1.0)
    assert a.caps.producing == 0


def test_a_restart_forgets_what_was_found() -> None:
    served = Served(engine(slots=16), runs=2, in_flight=5)
    for _ in range(STREAMS_HELD):
        served.turn()
    served.a.restarted()
    assert served.a.caps.inferred is None
    assert served.a.caps.pace.tokens_per_s(100) is None
    for _ in range(STREAMS_HELD):
        served.turn()
    assert served.a.caps.inferred is None


def test_the_pace_of_an_engine_that_tells_no_cached_tokens_is_guessed() -> None:
    a = engine(slots=16)
    for at in (0.0, 10.0, 20.0):
        a.lease(1, 1, 100, at, stream=True)
        a.first_token(1, at + 0.2)
        a.learn(a.release(1, at + 1.0), Usage(prompt_tokens=100), at + 1.0)
    assert a.caps.pace.tokens_per_s(100) == pytest.approx(500.0)


# How long a request waited inside the engine


def test_below_the_cap_nobody_waits_inside() -> None:
    a = engine(slots=2)
    a.lease(1, 1, 100, 0.0, stream=True)
    assert a.first_token(1, 3.0) == 0.0
    assert a.first_token(99, 3.0) is None


def test_before_a_cap_is_inferred_a_start_that_followed_an_end_tells_the_wait() -> None:
    served = Served(engine(slots=16), runs=2, in_flight=5)
    served.turn()
    assert served.inside_s[-1] == pytest.approx(2.2)


def test_beyond_the_cap_each_end_gives_its_slot_to_the_next_in_line() -> None:
    a = engine(slots=16)
    a.caps.proved(1)
    for key in (1, 2, 3, 4):
        a.lease(key, 1, 100, 0.0, stream=True)
    a.first_token(1, 0.1)
    a.release(1, 5.0)
    assert a.first_token(2, 6.5) == 5.0
    a.release(3, 7.0)
    a.release(2, 8.0)
    assert a.first_token(4, 8.5) == 8.0


def test_while_the_pace_is_unknown_so_is_the_wait_of_one_that_may_have_waited() -> None:
    a = engine(slots=16)
    for key in (1, 2, 3):
        a.lease(key, 1, 100, 0.0)
    a.lease(4, 1, 100, 0.0, stream=True)
    a.release(1, 5.0)
    assert a.first_token(4, 6.0) is None


# From reports


def told(running: int, waiting: int, times: int, kv_usage: float | None = None, **more: int) -> Engine:
    """An engine whose reports say so, while streams come and go. All that run produce."""
    a = engine(slots=16)
    keys = iter(range(1, 1000))
    live = [next(keys) for _ in range(running + waiting)]
    for key in live:
        a.lease(key, 1, 100, 0.0, prompt_tokens=more.get("prompt_tokens", 100), stream=True)
    for key in live[:running]:
        a.first_token(key, 0.1)
    for at in range(times):
        now = 2.0 + 2.0 * at
        a.reported(report(now, running, waiting, kv_usage), now)
        a.release(live.pop(0), now + 1.0)
        a.first_token(live[running - 1], now + 1.1)
        live.append(next(keys))
        a.lease(live[-1], 1, 100, now + 1.0, prompt_tokens=more.get("prompt_tokens", 100), stream=True)
    return a


def test_five_reports_of_waiting_requests_make_a_cap() -> None:
    assert told(4, 3, 4).caps.inferred is None
    assert told(4, 3, 5).caps.inferred == 4


def test_reports_say_nothing_while_prompts_are_computed_or_nothing_has_ended() -> None:
    a = engine(slots=16)
    for key in range(8):
        a.lease(key, 1, 100, 0.0, stream=True)
    for at in (2.0, 4.0, 6.0, 8.0, 10.0, 12.0):
        a.reported(report(at, 4, 4), at)
    for key in range(4):
        a.first_token(key, 13.0)
    for at in (14.0, 16.0, 18.0, 20.0, 22.0, 24.0):
        a.reported(report(at, 4, 4), at)
    assert a.caps.inferred is None


def test_reports_of_more_than_is_ours_say_nothing() -> None:
    a = told(4, 3, 5)
    assert a.caps.inferred == 4
    a.reported(report(99.0, 20, 0), 99.0)
    assert a.caps.inferred == 4


def test_a_report_of_more_that_run_raises_the_cap() -> None:
    a = told(4, 3, 5)
    a.reported(report(99.0, 6, 1), 99.0)
    assert a.caps.inferred == 6
    a.reported(report(101.0, 7, 0), 101.0)
    assert a.caps.inferred == 7


def test_what_slow_readers_seemed_to_run_yields_to_the_engines_own_count() -> None:
    a = told(4, 3, 4)
    # Three whose answers are complete in the engine, and not yet read.
    a.caps.exceeded(7)
    now = 20.0
    a.release(next(iter(a.leases)), now)
    a.first_token(next(iter(a.caps.waiters)), now)
    a.reported(report(now, 4, 2), now)
    assert (a.caps.inferred, a.caps.most) == (4, 4)


def test_reports_without_a_number_leave_it_to_the_streams() -> None:
    a = engine(slots=16)
    a.reported(LoadReport(asked_at=1.0, running=3), 1.0)
    assert not a.caps.is_told


def test_a_full_kv_memory_is_no_cap_of_slots() -> None:
    a = told(5, 6, 5, kv_usage=0.97)
    assert (a.caps.inferred, a.caps.kv_typical) == (None, 5)
    assert told(5, 6, 4, kv_usage=0.97).caps.kv_typical is None


def test_nor_is_one_with_less_room_than_the_next_prompt_needs() -> None:
    def with_kv(prompt_tokens: int) -> Engine:
        a = told(5, 6, 0, prompt_tokens=prompt_tokens)
        a.facts = Facts(models=("m",), slots=16, slots_source=SlotSource.DISCOVERED, kv_tokens=10_000)
        for at in range(5):
            now = 2.0 + 2.0 * at
            a.reported(report(now, 5, 6, kv_usage=0.8), now)
            a.release(1 + at, now + 1.0)
            a.first_token(6 + at, now + 1.1)
            a.lease(100 + at, 1, 100, now + 1.2, prompt_tokens=prompt_tokens, stream=True)
        return a

    assert (with_kv(3000).caps.inferred, with_kv(3000).caps.kv_typical) == (None, 5)
    assert (with_kv(300).caps.inferred, with_kv(300).caps.kv_typical) == (5, None)


def test_memory_that_holds_more_than_the_slots_is_not_what_holds_it_up() -> None:
    a = told(5, 6, 6, kv_usage=0.95)
    a.caps.proved(4)
    assert a.caps.kv_typical is None
    a.caps.proved(6)
    assert a.caps.kv_typical == 5


def test_slots_that_hold_it_up_wear_off_what_memory_did() -> None:
    a = told(5, 6, 5, kv_usage=0.95)
    live = sorted(a.leases)
    for at in range(5):
        now = 50.0 + 2.0 * at
        a.reported(report(now, 5, 6, kv_usage=0.5), now)
        a.release(live.pop(0), now + 1.0)
        a.first_token(live[4], now + 1.1)
        live.append(1000 + at)
        a.lease(live[-1], 1, 100, now + 1.0, stream=True)
    assert a.caps.kv_typical is None


def test_where_a_report_shows_waiting_ones_before_a_cap_is_known_their_prefill_is_not_blamed():
    a = engine("a", slots=16)
    for key in (1, 2, 3):
        a.lease(key, 1, 100, 0.0, prompt_tokens=100, stream=True)
    assert a.first_token(1, 0.1) == 0.0
    a.reported(report(1.0, 2, 1), 1.0)
    assert a.first_token(2, 1.5) == 0.0
    assert a.first_token(3, 4.0) is None


def test_a_report_of_more_that_wait_than_are_known_leaves_the_others_as_they_are():
    a = engine("a", slots=16)
    a.lease(1, 1, 100, 0.0, prompt_tokens=100, stream=True)
    a.lease(2, 1, 100, 0.0, prompt_tokens=100)
    a.reported(report(1.0, 0, 2), 1.0)
    assert a.first_token(1, 1.5) is None
