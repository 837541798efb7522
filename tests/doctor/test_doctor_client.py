"""The doctor's HTTP client, against scripted servers."""

import asyncio
import json
from collections.abc import AsyncIterator

import pytest
from loopback import Api, answering, listening, response, sse, whole_answer

from gateway.doctor.client import Client, longest_lag
from gateway.doctor.seen import Shape, Stream

SHAPE = Shape(prompt_tokens=4, output_tokens=9)


@pytest.fixture
async def client() -> AsyncIterator[Client]:
    async with Client(None, 5.0) as it:
        yield it


async def asked(client: Client, answer: bytes, *, resets: bool = False) -> Stream:
    async with answering(answer, resets=resets) as url:
        return await client.ask(url, {"stream": True}, 7, SHAPE, client.now())


def delta(**fields: object) -> str:
    return json.dumps({"choices": [{"delta": fields}]})


async def test_a_stream_is_timed_from_sending_to_its_last_token(client: Client) -> None:
    usage = json.dumps({"choices": [], "usage": {"prompt_tokens": 5, "completion_tokens": 2}})

    one = await asked(
        client, sse(delta(role="assistant"), delta(content="a"), delta(content="b"), usage, "[DONE]")
    )

    assert one.is_ok
    assert (one.number, one.shape, one.tokens, one.prompt_tokens) == (7, SHAPE, 2, 5)
    assert len(one.arrivals) == 2
    assert one.first_at is not None
    assert one.written_at is not None
    assert one.sent_at <= one.written_at <= one.first_at <= one.ended_at == one.arrivals[-1]


async def test_without_usage_pieces_are_counted(client: Client) -> None:
    assert (await asked(client, sse(delta(content="a"), delta(content="b"), "[DONE]"))).tokens == 2


@pytest.mark.parametrize("field", ["reasoning", "reasoning_content", "content"])
async def test_thoughts_are_text_too(client: Client, field: str) -> None:
    one = await asked(client, sse(delta(**{field: "a"}), "[DONE]"))

    assert one.first_at is not None


async def test_a_plain_completion_streams_text(client: Client) -> None:
    one = await asked(client, sse(json.dumps({"choices": [{"text": "a"}]}), "[DONE]"))

    assert len(one.arrivals) == 1


async def test_events_in_pieces_are_put_together(client: Client) -> None:
    whole = sse(delta(content="a"), delta(content="b"), "[DONE]")

    async def handler(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        for at in range(0, len(whole), 7):
            writer.write(whole[at : at + 7])
            await writer.drain()
            await asyncio.sleep(0)

    async with listening(handler) as url:
        one = await client.ask(url, {}, 0, SHAPE, client.now())

    assert len(one.arrivals) == 2


async def test_an_answer_in_one_piece_has_no_first_token(client: Client) -> None:
    async with Api(lambda path, body: whole_answer(6)) as url:
        one = await client.ask(url, {}, 0, SHAPE, client.now())

    assert one.is_ok
    assert (one.first_at, one.arrivals, one.tokens, one.prompt_tokens) == (None, (), 6, 20)


async def test_without_usage_an_answer_in_one_piece_is_as_long_as_asked_for(client: Client) -> None:
    assert (await asked(client, response(200, b'{"choices": [{"text": "a"}]}'))).tokens == 9


@pytest.mark.parametrize(
    ("body", "told"),
    [
        (b'{"error": {"message": "full"}}', "full"),
        (b'{"choices": []}', "no completion: {'choices': []}"),
        (b"<h1>hello</h1>", "no completion: <h1>hello</h1>"),
    ],
)
async def test_a_200_without_a_completion_is_no_answer(client: Client, body: bytes, told: str) -> None:
    one = await asked(client, response(200, body))

    assert (one.is_ok, one.status, one.error) == (False, 200, told)


async def test_text_in_parts_is_text(client: Client) -> None:
    one = await asked(client, sse(delta(content=[{"type": "text", "text": "a"}]), "[DONE]"))

    assert len(one.arrivals) == 1


async def test_a_get_is_read_to_its_end_in_however_many_pieces_it_comes(client: Client) -> None:
    async def handler(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        for piece in (response(200, b'{"data": '), b"[1, ", b"2]}"):
            writer.write(piece)
            await writer.drain()
            await asyncio.sleep(0.01)

    async with listening(handler) as url:
        answer = await client.get(url)

    assert answer is not None
    assert answer.body == b'{"data": [1, 2]}'


@pytest.mark.parametrize("status", [429, 503, 529])
async def test_refused_for_load_says_so_in_its_words(client: Client, status: int) -> None:
    one = await asked(client, response(status, b'{"error": {"message": "too \\n many"}}'))

    assert one.is_refused
    assert not one.is_ok
    assert (one.status, one.error) == (status, "too many")


@pytest.mark.parametrize(
    ("body", "told"),
    [
        (b'{"error": "no"}', "no"),
        (b'{"detail": "Not Found"}', "{'detail': 'Not Found'}"),
        (b"[1]", "[1]"),
        (b"<h1>Bad\n Gateway</h1>", "<h1>Bad Gateway</h1>"),
        (b"x" * 999, "x" * 200),
    ],
)
async def test_any_error_is_told_in_one_short_line(client: Client, body: bytes, told: str) -> None:
    one = await asked(client, response(400, body))

    assert (one.status, one.error, one.is_refused) == (400, told, False)


async def test_a_reset_in_the_middle_is_no_answer(client: Client) -> None:
    whole = sse(delta(content="a"))
    head = whole.replace(b"Connection: close", b"Content-Length: 9999")

    one = await asked(client, head, resets=True)

    assert not one.is_ok
    assert one.error


async def test_a_connection_that_is_refused_has_no_status(client: Client) -> None:
    async with answering(b"") as url:
        pass

    one = await client.ask(url, {}, 0, SHAPE, client.now())

    assert (one.status, one.is_ok) == (0, False)
    assert one.written_at is None
    assert one.tokens == SHAPE.output_tokens


async def test_a_stream_without_text_is_an_error(client: Client) -> None:
    assert (await asked(client, sse("[DONE]"))).error == "the stream brought no text"


async def test_an_error_in_the_stream_is_one_also_after_text(client: Client) -> None:
    error = json.dumps({"error": {"message": "out of memory"}})

    assert (await asked(client, sse(error, "[DONE]"))).error == "out of memory"
    assert (await asked(client, sse(delta(content="a"), error))).error == "out of memory"


async def test_an_error_of_null_is_none(client: Client) -> None:
    event = json.dumps({"choices": [{"delta": {"content": "a"}}], "error": None})

    assert (await asked(client, sse(event))).is_ok


async def test_what_is_no_event_is_skipped(client: Client) -> None:
    one = await asked(client, sse("garbage", "{}", '{"choices": 3}', '{"choices": null}', delta(content="a")))

    assert one.is_ok
    assert len(one.arrivals) == 1


async def test_no_end_in_time_says_so() -> None:
    async def handler(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        del writer
        await reader.read()

    async with Client(None, 0.05) as client, listening(handler) as url:
        one = await client.ask(url, {}, 0, SHAPE, client.now())
        assert await client.get(url) is None
        assert await client.why_not(url) == "no answer in time"
        assert await client.why_not(url, 0.01) == "no answer in time"

    assert (one.status, one.error) == (0, "no end within the time that was left")


@pytest.mark.parametrize(("header", "queue_s"), [("250", 0.25), ("soon", None)])
async def test_what_a_gateway_says_of_its_queue_is_kept(
    client: Client, header: str, queue_s: float | None
) -> None:
    one = await asked(client, response(200, b"{}", more=f"X-Gateway-Queue-Ms: {header}\r\n"))

    assert one.gateway_queue_s == queue_s


async def test_redirects_are_not_followed_so_the_key_stays_here() -> None:
    api = Api(lambda path, body: whole_answer(1))
    async with (
        api as elsewhere,
        Client("k-1", 5.0) as client,
        answering(response(307, b"", more=f"Location: {elsewhere}/\r\n")) as url,
    ):
        one = await client.ask(url, {}, 0, SHAPE, client.now())
        answer = await client.get(url)

    assert one.status == 307
    assert one.error == f"redirects to {elsewhere}/"
    assert answer is not None
    assert answer.status == 307
    assert api.keys == set()


async def test_the_key_is_sent_as_a_bearer() -> None:
    api = Api(lambda path, body: whole_answer(1))
    async with api as url, Client("k-1", 5.0) as client:
        await client.get(url + "/v1/models")
        await client.ask(url, {}, 0, SHAPE, client.now())

    assert api.keys == {"Bearer k-1"}


async def test_a_get_says_why_it_got_nothing(client: Client) -> None:
    async with answering(response(200, b"{}")) as url:
        assert await client.why_not(url) == ""
    assert "onnect" in await client.why_not(url)
    assert await client.get(url) is None


async def test_the_longest_time_that_the_loop_stood_still_is_seen() -> None:
    moments = iter([0.0, 0.5, 1.0, 1.02])
    seen = [0.0]

    with pytest.raises(RuntimeError, match="StopIteration"):
        await longest_lag(lambda: next(moments), 0.0, seen)

    assert seen == [0.5]
