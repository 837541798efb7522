"""What wrk's script prints, and what is made of it."""

import os
from pathlib import Path

import pytest

from gateway.bench.relay.errors import RelayError
from gateway.bench.relay.wrk import Load, Wrk, parse

LINE = (
    'relay-figures {"requests":9000,"duration_us":3000000,"p50_us":812,"p99_us":2400,"connect":1,"read":2,'
    '"write":3,"timeout":4,"status":5}'
)
OUTPUT = f"""\
Running 3s test @ http://127.0.0.1:19600/v1/chat/completions
  1 threads and 16 connections
  Thread Stats   Avg      Stdev     Max   +/- Stdev
    Latency   812.00us  100.00us   2.40ms   90.00%
  9000 requests in 3.00s, 4.10MB read
Requests/sec:   3000.00

{LINE}
"""


def test_figures_are_read_out_of_the_output() -> None:
    load = parse(OUTPUT)

    assert (load.requests, load.per_s, load.p50_us, load.p99_us) == (9000, 3000.0, 812, 2400)


def test_every_kind_of_error_is_a_bad_answer() -> None:
    assert parse(OUTPUT).bad == 1 + 2 + 3 + 4 + 5


def test_no_time_no_rate() -> None:
    nothing = dict.fromkeys(Load.__struct_fields__, 0)

    assert Load(**nothing).per_s == 0


@pytest.mark.parametrize(
    ("output", "message"),
    [
        ("", "wrk printed no figures: nothing at all"),
        ("unable to connect to 127.0.0.1:1", "no figures: unable to connect"),
        ('relay-figures {"requests":1}', "cannot be read: Object missing required field"),
    ],
)
def test_output_without_figures_is_an_error_that_shows_it(output: str, message: str) -> None:
    with pytest.raises(RelayError, match=message):
        parse(output)


@pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="only Linux pins processes")
@pytest.mark.skipif((os.cpu_count() or 1) < 2, reason="the load needs a second core")
def test_wrk_is_told_what_to_send_and_where(tmp_path: Path) -> None:
    program = tmp_path / "wrk"
    program.write_text(f"#!/bin/sh\necho \"$@\" > {tmp_path}/arguments\nprintf '%s\\n' '{LINE}'\n")
    program.chmod(0o700)

    load = Wrk(str(program), tmp_path / "x.lua", '{"a":1}').run(19600, connections=16, seconds=2)

    arguments = (tmp_path / "arguments").read_text().split()
    assert load.requests == 9000
    assert arguments[:3] == ["-t1", "-c16", "-d2s"]
    assert arguments[-1] == "http://127.0.0.1:19600/v1/chat/completions"
    assert 'wrk.body = [==[{"a":1}]==]' in (tmp_path / "x.lua").read_text()
