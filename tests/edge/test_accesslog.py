import io
import json

import pytest
from edge_values import a_record
from harness import chat, running
from raw_engine import answers, raw_engine, whole

from gateway.core.request import Outcome
from gateway.edge.accesslog import BUFFER_BYTES, AccessLog


def line_of(fmt, **changes):
    stream = io.StringIO()
    log = AccessLog(stream, fmt)
    log.write(a_record(**changes))
    log.flush()
    return stream.getvalue()


def test_a_text_line_holds_the_fields_in_a_fixed_order():
    assert line_of("text", key_name="team-a") == (
        "time=2026-01-02T03:04:05.678Z id=r-1 api=chat model=m engine=a outcome=ok status=200 queue_ms=20.0 "
        "ttft_ms=300.0 engine_queue_ms=80.0 prefill_ms=200.0 duration_ms=2000.0 prompt_tokens=1000 "
        "predicted=600 cached=512 route=prefix attempts=1 key=team-a\n"
    )


def test_unknown_values_and_empty_names_are_a_dash_and_never_zero():
    line = line_of("text", ttft_ms=None, prompt_tokens=None, cached_tokens=None, engine="", route="")
    for field in ("ttft_ms=-", "prompt_tokens=-", "cached=-", "engine=-", "route=-", "key=-"):
        assert f" {field}" in line


def test_a_value_that_is_a_dash_is_told_from_an_empty_one():
    assert ' id="-" ' in line_of("text", id="-")


def test_the_error_code_is_shown_where_there_is_one():
    line = line_of("text", outcome=Outcome.REJECTED, status=503, code="queue_full")
    assert " outcome=rejected status=503 " in line
    assert line.endswith(" code=queue_full\n")


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        ("Qwen/Qwen3-8B:latest", "Qwen/Qwen3-8B:latest"),
        ("two words", '"two words"'),
        ('x" outcome=ok', '"x\\" outcome=ok"'),
        ("a=b", '"a=b"'),
        ("back\\slash", '"back\\\\slash"'),
        ("x\ntime=2026 id=forged", '"x\\ntime=2026 id=forged"'),
        ("x\n", '"x\\n"'),
        ("\x1b[31m\x7f", '"\\u001b[31m\\u007f"'),
        ("é\u2028\x85", '"\\u00e9\\u2028\\u0085"'),
        ("\udcff", '"\\udcff"'),
    ],
)
@pytest.mark.parametrize("field", ["id", "model", "key_name"])
def test_what_a_client_chose_cannot_forge_a_line_or_a_field(field, value, shown):
    line = line_of("text", **{field: value})
    name = "key" if field == "key_name" else field
    assert f" {name}={shown}" in line
    assert line.isascii()
    assert line.splitlines() == [line.removesuffix("\n")]


def test_a_json_line_is_the_whole_record():
    line = line_of("json", cached_tokens=None)
    record = json.loads(line)
    assert record["outcome"] == "ok"
    assert record["cached_tokens"] is None
    assert record["best_cached_tokens"] == 800


def test_a_json_line_stays_one_ascii_line_whatever_the_client_sent():
    line = line_of("json", id='a"\n\u2028\x85é', model="m\udcff")
    assert line.isascii()
    assert line.splitlines() == [line.removesuffix("\n")]
    assert json.loads(line)["id"] == 'a"\n\u2028\x85é'
    assert json.loads(line)["model"] == "m\ufffd"


def test_nothing_is_written_before_a_flush():
    stream = io.StringIO()
    log = AccessLog(stream, "text")
    log.write(a_record())
    assert stream.getvalue() == ""
    log.flush()
    log.flush()
    assert stream.getvalue().count("\n") == 1


def test_lines_are_written_in_the_order_of_their_requests():
    stream = io.StringIO()
    log = AccessLog(stream, "text")
    for number in range(700):
        log.write(a_record(id=f"r{number}"))
        if number % 90 == 0:
            log.flush()
    log.flush()
    lines = stream.getvalue().splitlines()
    assert [line.split()[1] for line in lines] == [f"id=r{number}" for number in range(700)]


@pytest.mark.parametrize("fmt", ["text", "json"])
def test_a_full_buffer_is_written_without_waiting_for_the_timer(fmt):
    stream = io.StringIO()
    log = AccessLog(stream, fmt)
    written = 0
    while not stream.getvalue() and written < 10_000:
        log.write(a_record(id=f"r-{written}"))
        written += 1
    assert stream.getvalue().count("\n") == written
    assert BUFFER_BYTES < len(stream.getvalue()) < BUFFER_BYTES + 1000


class BrokenStream(io.StringIO):
    def write(self, text):
        raise BrokenPipeError


def test_a_broken_stream_costs_its_lines_and_says_so_but_fails_no_request():
    log = AccessLog(BrokenStream(), "text")
    log.write(a_record())
    log.write(a_record())
    log.flush()
    assert log.lost_lines == 2
    log.flush()
    assert log.lost_lines == 2


def test_a_closed_stream_is_a_broken_one():
    stream = io.StringIO()
    log = AccessLog(stream, "json")
    log.write(a_record())
    stream.close()
    log.flush()
    assert log.lost_lines == 1


def test_an_unknown_format_is_refused():
    with pytest.raises(ValueError, match="text or json"):
        AccessLog(io.StringIO(), "xml")


async def test_a_gateway_writes_it_where_it_is_told(tmp_path, capfd):
    stream = io.StringIO()
    async with raw_engine(answers(whole(b"{}"))) as engine:
        async with running(tmp_path, [engine.entry(name="a")], access_log=stream) as gateway:
            assert (await gateway.post("/v1/chat/completions", chat("hello", model="m")))[0] == 200
        assert "api=chat model=m engine=a outcome=ok" in stream.getvalue()
        assert capfd.readouterr().err == ""
        async with running(tmp_path, [engine.entry(name="a")]) as gateway:
            assert (await gateway.post("/v1/chat/completions", chat("hello", model="m")))[0] == 200
        assert "api=chat model=m engine=a outcome=ok" in capfd.readouterr().err
