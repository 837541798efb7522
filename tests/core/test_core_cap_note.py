from core_values import engine, fleet

from gateway.core.cap_note import CapNote, cap_note, found, sentence
from gateway.core.engine import Engine, Facts, LoadReport, SlotSource
from gateway.core.view import snapshot


def an_engine(slots: int, source: SlotSource, *, inferred: int | None = None, in_flight: int = 0) -> Engine:
    a = engine()
    a.facts = Facts(models=("m",), slots=slots, slots_source=source)
    for key in range(in_flight):
        a.lease(key, 1, 100, 0.0)
    if inferred is not None:
        a.caps.proved(inferred)
    return a


def test_requests_beyond_what_it_runs_wait_inside() -> None:
    a = an_engine(16, SlotSource.CONFIGURED, inferred=4, in_flight=16)
    assert sentence(a) == "configured 16, runs 4 at once; 12 requests wait inside it"
    assert cap_note(a) == CapNote("configured", 16, 4)
    assert found(a) == 4


def test_the_engines_own_count_of_those_comes_first() -> None:
    a = an_engine(16, SlotSource.DISCOVERED, inferred=4, in_flight=16)
    a.report = LoadReport(asked_at=1.0, running=4, waiting=1)
    assert sentence(a) == "discovered 16, runs 4 at once; 1 request waits inside it"
    a.report = LoadReport(asked_at=1.0, running=4, waiting=0)
    assert sentence(a) == "discovered 16, runs 4 at once"


def test_a_cap_that_holds_needs_no_word() -> None:
    assert sentence(an_engine(16, SlotSource.CONFIGURED)) == ""
    assert sentence(an_engine(16, SlotSource.CONFIGURED, inferred=16)) == ""
    assert sentence(an_engine(16, SlotSource.CONFIGURED, inferred=20)) == ""
    assert sentence(an_engine(8, SlotSource.ASSUMED, inferred=8)) == ""


def test_of_an_assumed_cap_it_is_said_what_came_of_it() -> None:
    assert sentence(an_engine(4, SlotSource.ASSUMED, inferred=12)) == "assumed 4, runs 12 at once"


def test_memory_that_holds_it_up_is_named() -> None:
    a = an_engine(16, SlotSource.CONFIGURED, in_flight=16)
    for at in range(5):
        a.report = LoadReport(asked_at=float(at), running=5, waiting=11, kv_usage=0.97)
        a.release(at, at + 0.5)
        a.lease(100 + at, 1, 100, at + 0.5)
        a.reported(a.report, at + 1.0)
    words = "configured 16, runs about 5 at once, held by KV memory (97 % used); 11 requests wait inside it"
    assert sentence(a) == words
    assert cap_note(a) == CapNote("configured", 16, None, is_kv=True)
    assert found(a) == 5
    a.report = LoadReport(asked_at=9.0, running=5, waiting=0)
    assert sentence(a) == "configured 16, runs about 5 at once"
    a.facts = Facts(models=("m",), slots=5, slots_source=SlotSource.CONFIGURED)
    assert sentence(a) == ""


def test_the_snapshot_says_it() -> None:
    scheduler = fleet("a", slots=16)
    scheduler.engines["a"].caps.proved(4)
    (view,) = snapshot(scheduler, 1.0).engines
    assert (view.inferred_cap, view.cap_note) == (4, "discovered 16, runs 4 at once")
