"""Two engines, or one, that answer unless a test makes them fail; what tests of failures share."""

from harness import chat
from raw_client import connect, request
from raw_engine import DONE, END, RawEngine, chunk, event, stream_head, whole

OK = b'{"ok":1}'
STREAMED = event("a") + event("b", "stop") + DONE


async def complete(call):
    if b'"stream": true' in call.body:
        call.write(stream_head(), chunk(STREAMED), END)
    else:
        call.write(whole(OK))


async def ask(gateway, stream=False, *headers):
    async with connect(gateway) as client:
        client.send(request(chat("hello", model="m", stream=stream), *headers))
        return await client.answer()


async def no_lease_is_left(gateway):
    engines = (await gateway.state())["engines"]
    assert [it["in_flight"] for it in engines] == [0] * len(engines)
    assert not gateway.gateway._relay._exchanges


def first_does(pair: dict[str, RawEngine], handler) -> None:
    """Whichever engine is asked first does `handler`, the other one answers."""
    asked = []

    async def handle(call):
        asked.append(call)
        await (handler if len(asked) == 1 else complete)(call)

    for engine in pair.values():
        engine.handler = handle


def calls_of(pair) -> int:
    return sum(len(it.calls) for it in pair.values())
