"""The soak's own arithmetic: how memory's growth is told, and that its load counts exactly."""

import sys
from pathlib import Path

import pytest
from harness import running, until
from raw_engine import DONE, END, chunk, event, raw_engine, stream_head, whole

SOAK = Path(__file__).parent.parent / "benchmarks" / "relay"
if not SOAK.is_dir():
    pytest.skip("the source distribution comes without benchmarks", allow_module_level=True)
sys.path.append(str(SOAK))

import load as generator  # noqa: E402
import soak  # noqa: E402


def test_growth_is_the_slope_of_the_line_through_the_points():
    assert soak.growth_mb_per_minute([(float(at), 60 + at / 60) for at in range(100)]) == pytest.approx(1.0)
    assert soak.growth_mb_per_minute([(float(at), 60.0) for at in range(100)]) == pytest.approx(0.0)
    assert soak.growth_mb_per_minute([(0.0, 1.0)]) == 0.0


def test_a_long_run_is_judged_from_minute_ten_and_a_short_one_by_its_last_two_thirds():
    series = [(float(at), 1.0) for at in range(0, 1801, 60)]
    assert soak.counted_part(series, 1800) == [(750, 1), (1050, 1), (1350, 1), (1650, 1)]
    assert soak.counted_part(series, 180)[0][0] == 60
    assert soak.counted_part(series, 180)[-1][0] == 180


def test_of_a_long_run_the_peaks_count_since_memory_goes_up_and_down():
    saw = [(float(at), 60 + at % 200 / 10) for at in range(1801)]
    assert soak.growth_mb_per_minute(soak.counted_part(saw, 1800)) == pytest.approx(0.0, abs=0.01)
    leak = [(at, mb + at / 60) for at, mb in saw]
    assert soak.growth_mb_per_minute(soak.counted_part(leak, 1800)) == pytest.approx(1.0, abs=0.2)


@pytest.mark.parametrize(
    ("mb_per_minute", "seconds", "grown"), [(0.49, 1800, False), (0.5, 900, True), (5.0, 899, False)]
)
def test_half_a_megabyte_a_minute_is_not_allowed_where_that_can_be_told(mb_per_minute, seconds, grown):
    assert soak.has_grown(mb_per_minute, seconds) is grown


def test_a_session_goes_on_from_what_it_said_before_and_depends_on_its_number_alone():
    first, again, other = (generator.Session(number) for number in (1, 1, 2))
    bodies = [it.request(stream=False).partition(b"\r\n\r\n")[2] for it in (first, again, other)]
    assert bodies[0] == bodies[1] != bodies[2]
    assert first.request(stream=False).partition(b"\r\n\r\n")[2].startswith(bodies[0].removesuffix(b"]}"))


async def test_what_the_load_says_it_sent_is_what_the_gateway_counts(tmp_path):
    async def answer(call):
        if b'"stream": true' in call.body:
            call.write(stream_head(), chunk(event("a" * 5000)), chunk(event("b", "stop") + DONE), END)
        else:
            call.write(whole(b'{"choices":[]}'))

    async with raw_engine(answer) as engine, running(tmp_path, [engine.entry(name="a", slots=64)]) as gateway:
        load = generator.Load(*gateway.address, sessions=20, universe=100, seed=1)
        await load.closed_loop(16, 1.0)

        async def all_counted():
            return await gateway.metric("requests_total") >= load.sent and load.running == 0

        await until(all_counted)
        load.close()
        assert await gateway.metric("requests_total") == load.sent
        assert load.counts["half"] > 0
        assert load.counts["left"] > 0
        assert load.sent + load.counts["half"] == sum(load.counts.values())
        assert load.sent > 100
