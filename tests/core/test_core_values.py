import msgspec
import pytest

from gateway.core import call, engine, events, request, snapshot

FROZEN = [
    call.Call,
    call.Prepared,
    engine.Cooling,
    engine.Facts,
    engine.LoadReport,
    events.Discovered,
    events.Probed,
    events.ProberHint,
    events.Reported,
    events.Restarted,
    request.Grant,
    request.Record,
    request.Rejection,
    request.Request,
    request.Usage,
    snapshot.EngineView,
    snapshot.RunningView,
    snapshot.Snapshot,
    snapshot.WaitingView,
]


@pytest.mark.parametrize("value", FROZEN, ids=lambda it: it.__name__)
def test_values_that_pass_between_the_planes_cannot_change(value: type[msgspec.Struct]) -> None:
    assert value.__struct_config__.frozen


def test_what_an_engine_did_not_report_is_unknown() -> None:
    assert all(getattr(request.Usage(), field) is None for field in request.Usage.__struct_fields__)


def test_priorities_have_names_in_their_order() -> None:
    named = [request.PRIORITY_NAMES[it] for it in (request.HIGH, request.NORMAL, request.LOW)]
    assert named == ["high", "normal", "low"]
