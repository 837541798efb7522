import pytest

from gateway.core.call import Header
from gateway.wire import http1

CREDENTIALS = (
    "authorization",
    "x-api-key",
    "api-key",
    "x-goog-api-key",
    "xi-api-key",
    "cookie",
    "proxy-authorization",
    "x-auth-token",
    "x-access-token",
    "x-litellm-api-key",
    "ocp-apim-subscription-key",
    "x-amz-security-token",
    "x-forwarded-access-token",
    "x-auth-request-access-token",
)
HOP_BY_HOP = ("connection", "keep-alive", "proxy-connection", "te", "trailer", "transfer-encoding", "upgrade")


def test_a_header_is_found_by_its_lower_case_name_first_one_first() -> None:
    headers = [(b"a", b"1"), (b"b", b"2"), (b"a", b"3")]
    assert http1.header(headers, b"a") == b"1"
    assert http1.header(headers, b"c") is None


@pytest.mark.parametrize(
    ("value", "listed"),
    [(b"100-continue", True), (b"a, 100-CONTINUE", True), (b"100-continued", False), (b"", False)],
)
def test_a_token_is_found_in_a_list_in_any_case(value: bytes, listed: bool) -> None:
    headers = [(b"expect", b"x"), (b"expect", value), (b"other", b"100-continue")]
    assert http1.is_listed(headers, b"expect", b"100-continue") is listed


@pytest.mark.parametrize("name", CREDENTIALS)
def test_no_credential_of_the_client_goes_to_an_engine(name: str) -> None:
    # litellm#32202
    assert http1.for_engine([(name.encode(), b"CANARY"), (b"x-a", b"1")]) == ((b"x-a", b"1"),)


@pytest.mark.parametrize("name", HOP_BY_HOP)
def test_what_belongs_to_one_connection_stays_there_both_ways(name: str) -> None:
    # production-stack#998
    headers = [(name.encode(), b"x"), (b"content-type", b"t")]
    assert http1.for_engine(headers) == ((b"content-type", b"t"),)
    assert http1.for_client(headers) == [(b"content-type", b"t")]


def test_what_connection_lists_is_dropped_both_ways() -> None:
    headers = [
        (b"connection", b"keep-alive, X-Foo"),
        (b"x-foo", b"1"),
        (b"connection", b"x-b"),
        (b"x-b", b"2"),
    ]
    assert http1.for_engine(headers) == ()
    assert http1.for_client(headers) == []


def test_session_and_trace_headers_go_to_the_engine_and_the_gateways_own_do_not() -> None:
    kept = [(b"x-session-id", b"s"), (b"traceparent", b"t"), (b"user-agent", b"u"), (b"x-stainless-os", b"l")]
    dropped = [(b"host", b"h"), (b"content-length", b"1"), (b"accept-encoding", b"gzip"), (b"expect", b"e")]
    dropped += [(b"x-gateway-priority", b"low"), (b"x-gateway-max-wait-ms", b"1"), (b"forwarded", b"f")]
    dropped += [(b"x-forwarded-for", b"1.2.3.4"), (b"x-forwarded-user", b"u"), (b"x-real-ip", b"1.2.3.4")]
    assert http1.for_engine(kept + dropped) == tuple(kept)


def test_an_engine_header_that_echoes_its_key_is_not_for_the_client() -> None:
    headers = [
        (b"x-debug", b"Bearer KEY!"),
        (b"server", b"s"),
        (b"content-length", b"5"),
        (b"x-request-id", b"i"),
    ]
    assert http1.for_client(headers, b"KEY") == [(b"server", b"s")]
    assert http1.for_client(headers) == [(b"x-debug", b"Bearer KEY!"), (b"server", b"s")]


def test_a_request_head_has_the_engines_host_and_the_bodys_length() -> None:
    before, between, after = http1.request_frame(
        b"/v1/x?q=1", b"e:1", http1.lines([(b"a", b"1")]), http1.lines([(b"b", b"2")])
    )
    head = before + b"5" + between + b"id" + after
    assert head == (
        b"POST /v1/x?q=1 HTTP/1.1\r\nhost: e:1\r\ncontent-length: 5\r\na: 1\r\n"
        b"x-request-id: id\r\nb: 2\r\n\r\n"
    )


@pytest.mark.parametrize(
    ("status", "line"),
    [(200, b"HTTP/1.1 200 OK"), (529, b"HTTP/1.1 529 Overloaded"), (599, b"HTTP/1.1 599 Unknown")],
)
def test_a_response_head_names_any_status(status: int, line: bytes) -> None:
    assert http1.response_head(status, http1.lines([(b"a", b"1")])) == line + b"\r\na: 1\r\n\r\n"


@pytest.mark.parametrize(
    ("given", "kept"),
    [
        (b"abc-1", "abc-1"),
        (b"a" * 128, "a" * 128),
        (b"a" * 129, "minted"),
        (b"", "minted"),
        (b"a b", "minted"),
        (b"a\x1b[31m", "minted"),
        (b"\xc3\xa9", "minted"),
    ],
)
def test_a_request_id_that_is_safe_to_log_is_kept(given: bytes, kept: str) -> None:
    assert http1.request_id([(b"x-request-id", given)], "minted") == kept


def test_a_request_without_an_id_gets_one() -> None:
    assert http1.request_id([], "minted") == "minted"


def test_an_upgrade_is_taken_out_of_a_head_and_the_rest_stays() -> None:
    headers: list[Header] = [(b"upgrade", b"h2c"), (b"connection", b"close, Upgrade,x-a"), (b"a", b"1")]
    assert http1.without_upgrade(headers) == [(b"connection", b"close,x-a"), (b"a", b"1")]


def test_chunks_are_framed_by_their_size_in_hex() -> None:
    assert http1.chunk(b"a" * 26) + http1.LAST_CHUNK == b"1a\r\n" + b"a" * 26 + b"\r\n0\r\n\r\n"


def test_a_stream_gets_what_keeps_proxies_from_storing_it_unless_the_engine_says_so():
    both = [(b"cache-control", b"no-cache, no-transform"), (b"x-accel-buffering", b"no")]
    assert http1.unbuffered([(b"content-type", b"text/event-stream")]) == both
    assert http1.unbuffered([(b"cache-control", b"no-store")]) == both[1:]
    assert http1.unbuffered(both) == []
