"""Which layer holds the requests that wait.

By the engine's own counters, while requests wait beyond a limit of 3:

    running < declared, nobody waits in it   -> a layer in front
    running = declared, some wait in it      -> its slots
    running < declared, some wait in it      -> KV memory, or batched tokens
"""

from collections.abc import Sequence

import pytest
from doctor_values import a_capped_round, a_stream, findings

from gateway.doctor.front import Layer, Where, layer
from gateway.doctor.seen import Engine, Findings, Look, Reading, Role, Round

# At 3 at once, six run until 4.0; three of them wait until 2.4 for their first token.
DURING, AT_ONCE = 1.0, 0.001


def reading(
    running: int | None, waiting: int | None, at: float = DURING, kv_usage: float | None = None
) -> Reading:
    return Reading(at, running, waiting, kv_usage)


def an_engine(slots: int | None = 8, *, direct: bool = True, kind: str = "vllm") -> Engine:
    return Engine(kind=kind, slots=slots, direct=direct)


def seen(
    readings: Sequence[Reading] = (),
    looks: Sequence[Look] = (),
    *,
    engine: Engine | None = None,
    sent: int = 6,
    lag_s: float = 0.0,
    idle_s: float | None = AT_ONCE,
) -> Findings:
    ramp = a_capped_round(sent, 3, readings=tuple(readings))
    look = a_capped_round(4, 3, role=Role.LOOK, looks=tuple(looks), lag_s=lag_s)
    return findings([ramp, look], engine=engine, idle_look_s=idle_s)


@pytest.mark.parametrize(
    ("running", "waiting", "declared", "where", "why"),
    [
        (3, 0, 8, Layer.FRONT, "the engine ran 3 of 8 and nobody waited in it: a layer in front holds them"),
        (3, 3, 3, Layer.ENGINE, "the engine ran 3 of 3 while 3 waited in it"),
        (3, 3, 8, Layer.KV, "the engine ran 3 of 8 while 3 waited in it: KV memory or batched tokens"),
        (3, 0, None, Layer.FRONT, "the engine ran 3 and nobody waited in it: a layer in front holds them"),
        (3, 3, None, Layer.ENGINE, "the engine ran 3 while 3 waited in it"),
    ],
)
def test_by_the_engines_own_counters(
    running: int, waiting: int, declared: int | None, where: Layer, why: str
) -> None:
    told = layer(seen([reading(running, waiting)] * 2, engine=an_engine(declared)), 3)

    assert (told.layer, told.why) == (where, (why,))


@pytest.mark.parametrize(("kv_usage", "where"), [(0.9, Layer.KV), (0.89, Layer.ENGINE), (None, Layer.ENGINE)])
def test_where_no_slots_are_declared_full_memory_tells(kv_usage: float | None, where: Layer) -> None:
    readings = [reading(3, 2, kv_usage=kv_usage)] * 2

    assert layer(seen(readings, engine=an_engine(None)), 3).layer is where


def test_one_reading_is_not_enough() -> None:
    assert layer(seen([reading(3, 0)], engine=an_engine()), 3).layer is Layer.UNKNOWN


@pytest.mark.parametrize("at", [0.0, 2.4, 3.0])
def test_readings_before_or_after_anybody_waited_do_not_count(at: float) -> None:
    assert layer(seen([reading(3, 0, at)] * 2, engine=an_engine()), 3).layer is Layer.UNKNOWN


def test_nor_do_those_of_rounds_in_which_nobody_had_to_wait() -> None:
    assert layer(seen([reading(3, 0)] * 2, engine=an_engine(), sent=3), 3).layer is Layer.UNKNOWN


def test_nor_those_of_a_round_without_an_answer() -> None:
    lost = Round(role=Role.RAMP, wanted=4, streams=(), readings=(reading(3, 0),) * 2)

    assert layer(findings([lost], engine=an_engine()), 3).layer is Layer.UNKNOWN


def test_an_engine_that_ran_more_than_the_limit_is_not_the_one_that_was_asked() -> None:
    assert layer(seen([reading(5, 0)] * 2, engine=an_engine()), 3).layer is Layer.UNKNOWN


# An engine that does not tell who waits in it


@pytest.mark.parametrize(
    ("running", "slots", "direct", "where"),
    [
        (3, 8, True, Layer.FRONT),
        (3, 4, True, Layer.FRONT),
        (4, 8, True, Layer.UNKNOWN),
        (3, None, True, Layer.UNKNOWN),
        (3, 8, False, Layer.UNKNOWN),
        (None, 8, True, Layer.UNKNOWN),
        (3, 3, True, Layer.ENGINE),
    ],
)
def test_slots_to_spare_while_requests_wait(
    running: int | None, slots: int | None, direct: bool, where: Layer
) -> None:
    of = seen([reading(running, None)] * 2, engine=an_engine(slots, direct=direct, kind="llamacpp"))

    assert layer(of, 3).layer is where


# What it declares


def test_as_many_slots_as_the_limit_are_the_limit() -> None:
    told = layer(seen(engine=an_engine(3, direct=False)), 3)

    assert told == Where(Layer.ENGINE, 0.15, ("the engine (vllm) itself says it has 3 slots",))


# A GET in the line: the first of four ends at 2.0


def looked(took_s: float | None, sent_at: float = 1.0) -> Look:
    return Look(sent_at, took_s)


@pytest.mark.parametrize(
    ("took_s", "where"),
    [
        (0.001, Layer.ENGINE),
        (0.051, Layer.ENGINE),
        (0.2, Layer.ENGINE),
        (0.21, Layer.UNKNOWN),
        (0.49, Layer.UNKNOWN),
        (0.5, Layer.FRONT),
        (1.0, Layer.FRONT),
        (None, Layer.FRONT),
    ],
)
def test_a_get_that_waits_as_long_as_the_requests_means_a_front(took_s: float | None, where: Layer) -> None:
    assert layer(seen(looks=[looked(took_s)]), 3).layer is where


def test_one_that_was_answered_at_once_is_enough_for_the_engine() -> None:
    assert layer(seen(looks=[looked(1.0), looked(0.01)]), 3).layer is Layer.ENGINE


@pytest.mark.parametrize(
    ("look", "changes"),
    [
        (looked(0.01, 1.951), {}),
        (looked(0.01), {"lag_s": 0.06}),
        (looked(0.01), {"idle_s": None}),
    ],
)
def test_a_get_that_could_not_have_waited_tells_nothing(look: Look, changes: dict[str, float | None]) -> None:
    told = layer(seen(looks=[look], **changes), 3)  # type: ignore[arg-type]

    assert told == Where(Layer.UNKNOWN, -0.1, ())


@pytest.mark.parametrize(
    ("readings", "took_s", "where"),
    [
        # Its counters were read through the same line: they and the GET agree, or one of them decides.
        ([reading(3, 0)] * 2, 1.0, Layer.FRONT),
        ([reading(3, 0)] * 2, 0.3, Layer.FRONT),
        ([reading(3, 3)] * 2, 1.0, Layer.KV),
        ([], 1.0, Layer.FRONT),
        ([], 0.01, Layer.ENGINE),
    ],
)
def test_counters_that_were_read_through_the_front(
    readings: list[Reading], took_s: float, where: Layer
) -> None:
    of = seen(readings, [looked(took_s)], engine=an_engine(direct=False))

    assert layer(of, 3).layer is where


# A prefix-gateway says how long it held a request


@pytest.mark.parametrize(
    ("queue_s", "where"), [(1.2, Layer.FRONT), (1.1, Layer.UNKNOWN), (None, Layer.UNKNOWN)]
)
def test_a_gateway_that_held_them_for_half_of_their_time(queue_s: float | None, where: Layer) -> None:
    streams = [a_stream(at) for at in range(3)]
    streams += [a_stream(at, begun_at=2.0, gateway_queue_s=queue_s) for at in range(3, 6)]
    of = findings([Round(role=Role.RAMP, wanted=6, streams=tuple(streams))], is_gateway=True)

    assert layer(of, 3).layer is where
