"""Bodies that are not JSON, as `/v1/audio/transcriptions` takes them."""

import json

import pytest
from harness import running
from raw_client import connect, request
from raw_engine import answers, raw_engine, whole

ANSWER = b'{"text":"hello"}'
PATH = "/v1/audio/transcriptions"
TYPE = "content-type: multipart/form-data; boundary=b0"
AUDIO = b'--b0\r\nContent-Disposition: form-data; name="file"; filename="a.wav"\r\n\r\n\x00\xff\r\n\n{"'
FIELD = b'--b0\r\nContent-Disposition: form-data; name="model"\r\n\r\n%b\r\n'


def form(model: bytes = b"") -> bytes:
    return (FIELD % model if model else b"") + AUDIO + b"\r\n--b0--\r\n"


@pytest.fixture
async def a():
    async with raw_engine(answers(whole(ANSWER)), models=("m",)) as engine:
        yield engine


@pytest.fixture
async def b():
    async with raw_engine(answers(whole(ANSWER)), models=("whisper",)) as engine:
        yield engine


async def post(gateway, data: bytes, *headers: str, path: str = PATH):
    async with connect(gateway) as client:
        client.send(request(data, *headers, path=path))
        return await client.answer()


async def test_a_form_reaches_the_engine_that_serves_its_model_unchanged(tmp_path, a, b):
    async with running(tmp_path, [a.entry(name="a"), b.entry(name="b")]) as gateway:
        answer = await post(gateway, form(b"whisper"), TYPE)
        assert (answer.status, answer.body) == (200, ANSWER)
        assert answer.headers["x-gateway-engine"] == "b"
        [call] = b.calls
        assert (call.body, call.path) == (form(b"whisper"), PATH)
        assert call.headers["content-type"] == TYPE.partition(": ")[2]
        [record] = await gateway.records()
        assert (record["api"], record["model"], record["width"], record["outcome"]) == (
            *("other", "whisper", 1),
            "ok",
        )
        assert (record["prompt_tokens"], record["cached_tokens"]) == (None, None)


@pytest.mark.parametrize("kind", [TYPE, "content-type: audio/wav"])
async def test_without_a_model_in_it_the_only_one_served_is_meant(tmp_path, a, b, kind):
    async with running(tmp_path, [a.entry(name="a")]) as gateway:
        assert (await post(gateway, form(), kind)).body == ANSWER
        assert a.calls[0].body == form()
    async with running(tmp_path, [a.entry(name="a"), b.entry(name="b")]) as gateway:
        answer = await post(gateway, form(), kind)
        assert (answer.status, answer.error["code"], answer.error["param"]) == (
            400,
            "invalid_request",
            "model",
        )


async def test_an_alias_in_a_form_becomes_the_models_name(tmp_path, a, b):
    entries = [a.entry(name="a"), b.entry(name="b")]
    async with running(tmp_path, entries, models={"aliases": {"whisper-1": "whisper"}}) as gateway:
        assert (await post(gateway, form(b"whisper-1"), TYPE)).status == 200
        assert b.calls[0].body == form(b"whisper")


async def test_a_model_that_nobody_serves_is_refused(tmp_path, a):
    async with running(tmp_path, [a.entry(name="a")]) as gateway:
        answer = await post(gateway, form(b"none"), TYPE)
        assert (answer.status, answer.error["code"]) == (404, "unknown_model")


async def test_json_is_still_read_where_it_is_said_or_nothing_is(tmp_path, a, b):
    async with running(tmp_path, [a.entry(name="a"), b.entry(name="b")]) as gateway:
        data = json.dumps({"model": "whisper"}).encode()
        for headers in [(), ("content-type: application/json",)]:
            assert (await post(gateway, data, *headers)).headers["x-gateway-engine"] == "b"
            answer = await post(gateway, form(b"whisper"), *headers)
            assert (answer.status, answer.error["code"]) == (400, "invalid_request")


async def test_an_api_whose_bodies_are_json_reads_json_whatever_the_type_says(tmp_path, a):
    async with running(tmp_path, [a.entry(name="a")]) as gateway:
        path = "/v1/chat/completions"
        assert (await post(gateway, b'{"model":"m"}', TYPE, path=path)).status == 200
        answer = await post(gateway, form(b"m"), TYPE, path=path)
        assert (answer.status, answer.error["code"]) == (400, "invalid_request")
