"""An answer that comes in one piece goes a shorter way, and comes to the same as one that comes in many."""

import gzip
import json
from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from gateway.config import LimitsConfig
from gateway.core.call import Call, Prepared
from gateway.core.request import Grant, Request, Route
from gateway.edge.exchange import Exchange
from gateway.edge.intake import Taken
from gateway.edge.trace import WallClock
from gateway.edge.upstream import EngineConnection
from gateway.wire.heads import Heads


class Client:
    """Notes what is sent, and how it ends."""

    paused = False

    def __init__(self):
        self.head = None
        self.body = b""
        self.end = []

    def send_lines(self, *head):
        self.head = head

    def send_body(self, data):
        self.body += data

    send_now = send_body

    def flush(self):
        pass

    def send_end(self):
        self.end.append("end")

    def end_body(self, *, close=False):
        self.end.append(("over", close))

    def send_error(self, *error):
        self.end.append(error)

    def break_off(self, error):
        self.end.append(error)


class Relay:
    """Relay, dispatcher, pool and the engine's transport, where time stands still."""

    limits = LimitsConfig()
    echo_alias = True
    tls = None
    wall = WallClock(1e9, 0.0)

    def __init__(self, *, declines: bool, tells_cached: bool):
        self.dispatcher = self
        self.pools = {"a": self}
        self.told = []
        self.heads = Heads()
        self._declines = declines
        self._tells_cached = tells_cached
        self.connection = EngineConnection(self)
        self.connection.connection_made(self)

    def now(self):
        return 5.0

    def __getattr__(self, name):
        """What only has to have been asked for, in this order."""
        return lambda *args, **named: self.told.append((name, args[1:], named))

    def dialect(self, engine):
        return self

    def prepare(self, call):
        return Prepared(path=call.path, headers=(), body=call.body, tells_cached=self._tells_cached)

    def request_head(self, prepared, query, request_id):
        return b""

    def set_write_buffer_limits(self, **limits):
        pass

    def writelines(self, pieces):
        pass

    def is_closing(self):
        return False

    def idle(self):
        return self.connection

    def decline(self, key):
        return self._declines

    def finish(self, *args, **named):
        self.told.append(("finish", args, named))
        return 5.0


BODIES = st.one_of(
    st.binary(max_size=40),
    st.builds(
        lambda usage, model: json.dumps({"model": model, "choices": [{}], **usage}).encode(),
        st.fixed_dictionaries(
            {
                "usage": st.just({"prompt_tokens": 9, "prompt_tokens_details": {"cached_tokens": 4}})
                | st.dictionaries(
                    st.sampled_from(("prompt_tokens", "completion_tokens", "input_tokens", "output_tokens")),
                    st.none() | st.integers(-1, 2**70) | st.text(max_size=1),
                ),
            },
            optional={
                "timings": st.just({"cache_n": 3, "prompt_n": 4, "prompt_ms": 5.0}),
                "error": st.none() | st.just({"code": 503}),
                "message": st.text(max_size=2) | st.just({"usage": {"input_tokens": 3}}),
            },
        ),
        st.sampled_from(("m", "other")),
    ),
)


@st.composite
def answers(draw) -> tuple[bytes, bool]:
    """Bytes of an answer, and whether the connection ends with it."""
    body = draw(BODIES)
    status = draw(st.sampled_from((200, 201, 302, 400, 404, 429, 500, 503)))
    head = b"HTTP/1.1 %d X\r\nx-other: 1\r\n" % status
    head += draw(st.sampled_from((b"", b"content-type: application/json\r\n")))
    if draw(st.integers(0, 7)) == 0:
        head, body = head + b"content-encoding: gzip\r\n", gzip.compress(body, mtime=0)
    framing = draw(st.sampled_from(("length", "length", "chunked", "end", "leaves")))
    if framing == "chunked":
        pieces = [b"%x\r\n%b\r\n" % (len(it), it) for it in (body[:9], body[9:]) if it]
        return head + b"transfer-encoding: chunked\r\n\r\n" + b"".join(pieces) + b"0\r\n\r\n", False
    if framing == "end":
        return head + b"\r\n" + body, True
    if framing == "leaves":
        head += b"connection: close\r\n"
    return head + b"content-length: %d\r\n\r\n" % len(body) + body, False


def told(pieces: list[bytes], ends: bool, request: Request, alias: str, **relay_says):
    """What comes of an answer in `pieces`: for the client, for all others."""
    relay, client = Relay(**relay_says), Client()
    body = b'{"model":"x"}'
    call = Call(api=request.api, path="/v1/x", query="", headers=(), body=body)
    exchange = Exchange(relay, client, Taken(request, call, alias), "key")
    exchange.granted(
        Grant(
            key=1, engine="a", model="m", route=Route.ONLY, attempt=1, width=1, predicted_tokens=3,
            best_tokens=4, queue_s=0.0,
        )
    )  # fmt: skip
    for piece in pieces:
        if relay.connection.attempt is not None:
            relay.connection.data_received(piece)
    if ends:
        relay.connection.connection_lost(None)
    assert relay.connection.attempt is None
    return client.head, client.body, client.end, relay.told, exchange.state


@given(
    answers(),
    st.lists(st.integers(0, 200), max_size=4),
    st.sampled_from(("chat", "completions", "embeddings", "messages")),
    st.integers(1, 2),
    st.sampled_from(("", "", "nick")),
    st.booleans(),
    st.booleans(),
)
def test_an_answer_comes_to_the_same_in_one_piece_and_in_many(
    answer, cuts, api, prompts, alias, declines, tells_cached
):
    data, ends = answer
    edges = [0, *sorted(min(cut, len(data)) for cut in cuts), len(data)]
    pieces = [data[start:end] for start, end in pairwise(edges) if start < end]
    request = Request(key=1, id="r-1", api=api, model="m", prompts=prompts)
    says = {"declines": declines, "tells_cached": tells_cached}
    assert told([data], ends, request, alias, **says) == told(pieces, ends, request, alias, **says)
    one_by_one = [data[at : at + 1] for at in range(len(data))]
    assert told([data], ends, request, alias, **says) == told(one_by_one, ends, request, alias, **says)
