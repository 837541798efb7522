import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from reading import CHUNKED, HEAD, LIMIT, NO_BODY, only, read, refused
from splits import cut_lists, in_sizes, pieces, ways

from gateway.wire.collector import MAX_HEAD_BYTES, MAX_HEADERS
from gateway.wire.reader import Head, Incoming, RequestReader


def test_a_request_is_whole_after_its_last_byte() -> None:
    head = Head(
        method=b"POST",
        url=b"/v1/chat/completions?a=b",
        headers=[(b"host", b"h"), (b"x-a", b"1"), (b"content-length", b"3")],
        keep_alive=True,
        http10=False,
    )
    assert only(HEAD + b"X-A: 1\r\nContent-Length: 3\r\n\r\nabc") == Incoming(head, b"abc")


def test_reading_tells_where_in_a_request_the_bytes_end() -> None:
    reader = RequestReader(LIMIT)
    seen = []
    for part in (b"\r\n", HEAD, b"content-length: 1\r\n\r\n", b"a"):
        reader.feed(part)
        seen.append((reader.reading, reader.in_head, len(reader.ready)))
    assert seen == [(False, False, 0), (True, True, 0), (True, False, 0), (False, False, 1)]


def test_a_body_is_not_kept_once_it_was_handed_out() -> None:
    reader = RequestReader(LIMIT)
    for part in (HEAD + b"content-length: 6\r\n\r\n", b"abc", b"def"):
        reader.feed(part)
    assert reader.ready.popleft().body == b"abcdef"
    assert reader._pieces == []
    assert reader.url == b"/v1/chat/completions?a=b"


def test_a_chunked_body_is_joined_and_its_extensions_and_trailers_are_dropped() -> None:
    body = b'3;a="b"\r\nabc\r\n2\r\nde\r\n0\r\nauthorization: CANARY\r\nconnection: content-type\r\n\r\n'
    incoming = only(HEAD + CHUNKED + body)
    assert incoming.body == b"abcde"
    assert incoming.head.headers == [(b"host", b"h"), (b"transfer-encoding", b"chunked")]


def test_requests_sent_ahead_are_read_in_order() -> None:
    data = HEAD + b"content-length: 1\r\n\r\na" + HEAD + CHUNKED + b"1\r\nb\r\n0\r\n\r\n"
    data += b"GET / HTTP/1.1\r\n\r\n"
    for parts in ways(data):
        requests, refusal = read(parts)
        assert [(it.head.method, it.body) for it in requests] == [
            (b"POST", b"a"),
            (b"POST", b"b"),
            (b"GET", b""),
        ]
        assert refusal == ""


@pytest.mark.parametrize(
    ("head", "keep_alive", "http10"),
    [
        (b"POST / HTTP/1.1\r\n", True, False),
        (b"POST / HTTP/1.1\r\nconnection: close\r\n", False, False),
        (b"POST / HTTP/1.0\r\n", False, True),
        (b"POST / HTTP/1.0\r\nconnection: keep-alive\r\n", True, True),
    ],
)
def test_the_client_says_whether_the_connection_stays(head: bytes, keep_alive: bool, http10: bool) -> None:
    incoming = only(head + b"content-length: 1\r\n\r\na")
    assert (incoming.head.keep_alive, incoming.head.http10, incoming.body) == (keep_alive, http10, b"a")


def test_what_follows_a_last_request_is_ignored() -> None:
    last = HEAD + b"connection: close\r\ncontent-length: 1\r\n\r\na"
    assert only(last + b"\r\nGARBAGE\x00").body == b"a"


@pytest.mark.parametrize(
    "data",
    [
        HEAD + b"content-length: 3\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n",
        HEAD + b"transfer-encoding: chunked\r\ncontent-length: 3\r\n\r\n0\r\n\r\n",
        HEAD + b"content-length: 3\r\ncontent-length: 3\r\n\r\nabc",
        HEAD + b"content-length: 3, 3\r\n\r\nabc",
        HEAD + b"content-length: +3\r\n\r\nabc",
        HEAD + b"content-length: -3\r\n\r\nabc",
        HEAD + b"content-length: 99999999999999999999\r\n\r\n",
        HEAD + b"transfer-encoding: gzip\r\n\r\nabc",
        HEAD + b"transfer-encoding: chunked, gzip\r\n\r\nabc",
        HEAD + b"transfer-encoding: xchunked\r\n\r\nabc",
        HEAD + b"x: a\r\n folded\r\n" + NO_BODY,
        HEAD + b"x: a\n" + NO_BODY,
        HEAD + b"x: a\rb\r\n" + NO_BODY,
        HEAD + b"x : a\r\n" + NO_BODY,
        HEAD + b"x: a\x00b\r\n" + NO_BODY,
        b"POST / HTTP/1.1\ncontent-length: 0\n\n",
        HEAD + CHUNKED + b"zz\r\n",
        HEAD + CHUNKED + b"-1\r\n",
        HEAD + CHUNKED + b"3\nabc\n0\n\n",
        HEAD + CHUNKED + b"3\r\nabcd\r\n0\r\n\r\n",
        HEAD + CHUNKED + b"fffffffffffffffff\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00",
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
        b"NONSENSE / HTTP/1.1\r\n\r\n",
        b"POST /\xff HTTP/1.1\r\n\r\n",
    ],
)
def test_what_two_parsers_could_read_differently_is_refused(data: bytes) -> None:
    assert refused(data).startswith("Not a valid HTTP/1.1 request: ")


def test_a_good_request_before_a_bad_one_stands() -> None:
    for parts in ways(HEAD + b"content-length: 1\r\n\r\naGARBAGE"):
        requests, refusal = read(parts)
        assert [it.body for it in requests] == [b"a"]
        assert refusal.startswith("Not a valid HTTP/1.1 request")


def test_200_headers_are_read_and_201_are_not() -> None:
    lines = b"".join(b"x-%d: v\r\n" % number for number in range(MAX_HEADERS - 1))
    assert len(only(b"GET / HTTP/1.1\r\nhost: h\r\n" + lines + b"\r\n").head.headers) == MAX_HEADERS
    said = refused(b"GET / HTTP/1.1\r\nhost: h\r\n" + lines + b"x: v\r\n\r\n")
    assert said == "The head has more than 200 headers."


TOO_LARGE = "The head is larger than 65536 bytes."


@pytest.mark.parametrize(
    "data",
    [
        HEAD + b"x: " + b"a" * MAX_HEAD_BYTES + b"\r\n\r\n",
        HEAD + b"".join(b"x-%d: %b\r\n" % (n, b"a" * 1000) for n in range(66)) + b"\r\n",
        b"GET /" + b"a" * MAX_HEAD_BYTES,
        HEAD + CHUNKED + b"0\r\nx: " + b"a" * MAX_HEAD_BYTES + b"\r\n\r\n",
    ],
    ids=["value", "sum", "target", "trailer"],
)
@pytest.mark.parametrize("size", [100_000, 1000, 1])
def test_a_head_or_trailer_over_64_kib_is_refused(data: bytes, size: int) -> None:
    assert read(in_sizes(data, size)) == ([], TOO_LARGE)


@pytest.mark.parametrize(
    "start",
    [HEAD + b"x: ", HEAD + b"x", HEAD + CHUNKED + b"0\r\nx: ", HEAD + CHUNKED + b"3;"],
    ids=["value", "name", "trailer", "extension"],
)
@pytest.mark.parametrize("size", [65_000, 1000, 1])
def test_what_never_ends_is_refused_after_64_kib(start: bytes, size: int) -> None:
    assert read([start, *in_sizes(b"a" * (MAX_HEAD_BYTES + 1), size)]) == ([], TOO_LARGE)


def test_a_head_below_64_kib_and_a_body_of_any_size_are_read_in_any_split() -> None:
    head = HEAD + b"x: " + b"a" * (MAX_HEAD_BYTES - 200) + b"\r\ncontent-length: 300000\r\n\r\n"
    data = head + b"b" * 300_000
    for size in (len(data), 1, 1000):
        reader = RequestReader(300_000)
        for part in in_sizes(data, size):
            reader.feed(part)
        assert len(reader.ready[0].body) == 300_000


def test_too_many_trailers_are_refused() -> None:
    trailers = b"".join(b"x-%d: v\r\n" % number for number in range(MAX_HEADERS + 1))
    assert refused(HEAD + CHUNKED + b"0\r\n" + trailers) == "The head has more than 200 headers."


def test_a_body_over_the_limit_is_refused_by_its_length_before_it_comes() -> None:
    # liaohch3/claude-tap#2, argo-proxy#56
    reader = RequestReader(LIMIT)
    reader.feed(HEAD + b"expect: 100-continue\r\ncontent-length: 1001\r\n\r\n")
    assert reader.refusal is not None
    assert reader.refusal.code == "body_too_large"
    assert reader.refusal.message.startswith("The request body has 1001 bytes; the limit is 1000 bytes")
    assert not reader.wants_continue
    reader.feed(b"a" * 1001 + HEAD + NO_BODY)
    assert not reader.ready


def test_a_chunked_body_over_the_limit_is_refused_by_its_counted_bytes() -> None:
    chunk = b"1f4\r\n" + b"a" * 500 + b"\r\n"
    assert len(only(HEAD + CHUNKED + chunk * 2 + b"0\r\n\r\n").body) == LIMIT
    said = refused(HEAD + CHUNKED + chunk * 2 + b"1\r\na\r\n" + chunk + b"0\r\n\r\n")
    assert said == "The request body is too long; the limit is 1000 bytes (limits.max_body)."


@pytest.mark.parametrize("expect", [b"100-continue", b"100-Continue"])
def test_a_client_that_waits_for_continue_is_seen_until_its_body_comes(expect: bytes) -> None:
    reader = RequestReader(LIMIT)
    reader.feed(HEAD + b"Expect: " + expect + b"\r\ncontent-length: 2\r\n\r\n")
    assert reader.wants_continue
    reader.feed(b"a")
    assert not reader.wants_continue


@pytest.mark.parametrize(
    "head",
    [
        b"POST / HTTP/1.0\r\nexpect: 100-continue\r\ncontent-length: 1\r\n\r\n",
        b"POST / HTTP/1.1\r\nexpect: something\r\ncontent-length: 1\r\n\r\n",
        b"POST / HTTP/1.1\r\nexpect: 100-continue\r\ncontent-length: 0\r\n\r\n",
    ],
)
def test_who_cannot_wait_for_continue_does_not_get_it(head: bytes) -> None:
    reader = RequestReader(LIMIT)
    reader.feed(head)
    assert not reader.wants_continue


@pytest.mark.parametrize("body", [b"content-length: 3\r\n\r\nabc", CHUNKED + b"3\r\nabc\r\n0\r\n\r\n"])
def test_an_offer_of_another_protocol_is_passed_over_and_the_body_is_read(body: bytes) -> None:
    # Java's HttpClient: connection: Upgrade, HTTP2-Settings
    offer = b"connection: Upgrade, HTTP2-Settings\r\nupgrade: h2c\r\nhttp2-settings: AAEA\r\n"
    for parts in ways(HEAD + offer + body + HEAD + NO_BODY):
        requests, refusal = read(parts)
        assert refusal == ""
        assert [it.body for it in requests] == [b"abc", b""]
        assert (b"connection", b" HTTP2-Settings") not in requests[0].head.headers
        assert b"upgrade" not in dict(requests[0].head.headers)


def test_an_offer_with_a_body_over_the_limit_is_refused() -> None:
    data = HEAD + b"connection: upgrade\r\nupgrade: h2c\r\ncontent-length: 2000\r\n\r\n"
    assert "has 2000 bytes" in refused(data)


def test_a_tunnel_is_refused() -> None:
    assert refused(b"CONNECT a:443 HTTP/1.1\r\nhost: a\r\n\r\n") == (
        "This endpoint is no proxy: it does not take CONNECT."
    )


BODIES = st.binary(max_size=300)
EXTRAS = [b"", b"x-a: b\r\n", b"expect: 100-continue\r\n", b"connection: upgrade\r\nupgrade: h2c\r\n"]
RESTS = [b"", b"\x00", b"GET /"]


@st.composite
def request_bytes(draw: st.DrawFn) -> bytes:
    body = draw(BODIES)
    extra = draw(st.sampled_from(EXTRAS))
    if draw(st.booleans()):
        return HEAD + extra + b"content-length: %d\r\n\r\n" % len(body) + body
    framed = b"".join(b"%x\r\n%b\r\n" % (len(it), it) for it in in_sizes(body, draw(st.integers(1, 50))))
    return HEAD + extra + CHUNKED + framed + b"0\r\n" + draw(st.sampled_from([b"", b"t: 1\r\n"])) + b"\r\n"


@settings(deadline=None)
@given(
    st.lists(request_bytes(), min_size=1, max_size=4).map(b"".join),
    st.sampled_from(RESTS),
    cut_lists,
)
def test_requests_are_the_same_in_any_split(requests: bytes, rest: bytes, cuts: list[int]) -> None:
    data = requests + rest
    whole = read([data])
    assert read(pieces(data, cuts)) == whole
    assert read(in_sizes(data, 1)) == whole
    assert len(whole[0]) >= 1


@settings(deadline=None)
@given(st.binary(max_size=200), cut_lists)
def test_any_bytes_are_requests_or_a_bad_request(data: bytes, cuts: list[int]) -> None:
    assert read(pieces(HEAD + data, cuts))[0] == read([HEAD + data])[0]
