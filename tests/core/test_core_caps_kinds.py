"""Requests and reports that say less of a cap than a stream of one slot: of several slots, not streamed, of
an engine that runs none."""

from core_values import engine, usage

from gateway.core.engine import LoadReport
from gateway.core.request import Usage


def test_an_engine_that_runs_none_while_some_wait_has_no_cap_of_none() -> None:
    a = engine(slots=16)
    for key in range(1, 20):
        now = 2.0 * key
        a.lease(key, 1, 10, now)
        a.lease(100 + key, 1, 10, now)
        a.reported(LoadReport(asked_at=now + 1.0, running=0, waiting=1), now + 1.0)
        a.release(key, now + 1.5)
    assert (a.caps.inferred, a.slots) == (None, 16)


def test_of_a_request_of_several_slots_one_token_does_not_show_that_all_run() -> None:
    a = engine(slots=8)
    a.lease(1, 4, 100, 0.0, stream=True)
    a.lease(2, 1, 100, 0.0, stream=True)
    a.first_token(1, 0.1)
    a.first_token(2, 0.2)
    assert (a.caps.producing, a.caps.most, a.caps.wide) == (5, 0, 1)
    a.release(1, 1.0)
    a.lease(3, 1, 100, 1.0, stream=True)
    a.first_token(3, 1.1)
    assert (a.caps.producing, a.caps.most, a.caps.wide) == (2, 2, 0)


def test_prompts_of_answers_in_one_piece_do_not_make_an_engine_look_fast() -> None:
    """The engine tells no cached tokens: what it computed until a first token is a guess."""
    a = engine(slots=16)
    for turn in range(3):
        now = 100.0 * turn
        for key in range(10 * turn + 1, 10 * turn + 9):
            a.lease(key, 1, 4000, now)
        for key in range(10 * turn + 1, 10 * turn + 9):
            a.learn(a.release(key, now + 50.0), usage(4000), now + 50.0)
        key = 10 * turn + 9
        a.lease(key, 1, 1000, now + 60.0, stream=True)
        a.first_token(key, now + 61.0)
        a.learn(a.release(key, now + 62.0), Usage(prompt_tokens=1000), now + 62.0)
    assert a.caps.pace.tokens_per_s(1000) == 1000.0
