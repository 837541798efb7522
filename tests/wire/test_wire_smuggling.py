"""Requests that a parser before or behind the gateway could read as something else are refused."""

import pytest
from reading import CHUNKED, HEAD, NO_BODY, only, refused


@pytest.mark.parametrize(
    "value",
    [
        b" chunked, identity", b" identity, chunked", b" gzip, chunked", b" trailers, chunked", b",chunked",
        b" chunked,", b" chunked, chunked", b" identity", b"", b" xchunked", b" chunkedx", b" chunked;q=1",
        b" \"chunked\"", b"\x0bchunked", b" chun\x00ked", b" chunked\x80",
        b" chunked\r\ntransfer-encoding: chunked", b" chunked\r\ntransfer-encoding: identity",
        b" identity\r\nTransfer-Encoding: chunked", b" gzip\r\ntransfer-encoding: chunked",
        b"\r\n chunked", b" chunked\r\nTRANSFER-ENCODING:\tchunked",
    ],
)  # fmt: skip
@pytest.mark.parametrize("offer", [b"", b"connection: upgrade\r\nupgrade: h2c\r\n"], ids=["", "upgrade"])
def test_any_transfer_coding_but_one_chunked_is_refused(value: bytes, offer: bytes) -> None:
    data = HEAD + offer + b"transfer-encoding:" + value + b"\r\n\r\n5\r\nhello\r\n0\r\n\r\n"
    assert refused(data).startswith("Not a valid HTTP/1.1 request: ")


@pytest.mark.parametrize("value", [b"chunked", b" chunked", b"\tChunked", b" CHUNKED ", b"   chunked  "])
def test_chunked_is_read_in_any_case_with_blanks_around_it(value: bytes) -> None:
    assert only(HEAD + b"transfer-encoding:" + value + b"\r\n\r\n5\r\nhello\r\n0\r\n\r\n").body == b"hello"


@pytest.mark.parametrize(
    "value",
    [
        b"+5", b"0x5", b"-5", b"-0", b"5,5", b"5, 6", b"5 5", b"5.0", b"5e0", b"", b" ", b"0_5", b"5;",
        b"'5'",
        b"5\x0b", b"5\x00", b"\xb5", b"\xef\xbc\x95", b"18446744073709551616", b"9" * 40,
        b"5\r\ncontent-length: 6", b"5\r\ncontent-length: 5", b"5\r\nContent-Length: 0", b"\r\n 5",
    ],
)  # fmt: skip
def test_a_length_that_is_not_one_row_of_digits_is_refused(value: bytes) -> None:
    data = HEAD + b"content-length:" + value + b"\r\n\r\nhello"
    assert refused(data).startswith("Not a valid HTTP/1.1 request: ")


@pytest.mark.parametrize("value", [b"5", b" 5 ", b"\t5\t", b"05", b"0" * 30 + b"5"])
def test_blanks_around_a_length_and_zeros_before_it_change_nothing(value: bytes) -> None:
    assert only(HEAD + b"content-length:" + value + b"\r\n\r\nhello").body == b"hello"


@pytest.mark.parametrize(
    "line",
    [
        b"POST /v1/x\r\n", b"POST /v1/x HTTP/0.9\r\n", b"POST /v1/x HTTP/2.0\r\n", b"POST /v1/x HTTP/1.2\r\n",
        b"POST /v1/x HTTP/3.0\r\n", b"POST /v1/x HTTP/1\r\n", b"POST /v1/x HTTP/01.1\r\n",
        b"POST /v1/x http/1.1\r\n", b"POST /v1/x HTTP/1.1 \r\n", b"POST /v1/x HTTP/1.1x\r\n",
        b"POST /v1/x HTTPS/1.1\r\n", b"POST /v1/x y HTTP/1.1\r\n", b"POST\t/v1/x HTTP/1.1\r\n",
        b"post /v1/x HTTP/1.1\r\n", b" POST /v1/x HTTP/1.1\r\n", b"POST h:80 HTTP/1.1\r\n",
        b"POST /v1/x HTTP/1.1\n", b"POST /v1/x HTTP/1.1\r", b"POST /v1/\x00 HTTP/1.1\r\n",
        b"POST /v1/x\x7f HTTP/1.1\r\n",
    ],
)  # fmt: skip
def test_a_first_line_that_is_not_of_http_1_1_or_1_0_is_refused(line: bytes) -> None:
    assert refused(line + b"host: h\r\ncontent-length: 5\r\n\r\nhello").startswith(
        "Not a valid HTTP/1.1 request: "
    )


def test_a_request_without_a_version_and_headers_is_refused() -> None:
    assert refused(b"GET /v1/models\r\n\r\n").startswith("Not a valid HTTP/1.1 request: ")


def test_http_1_0_has_no_transfer_coding() -> None:
    data = b"POST /v1/x HTTP/1.0\r\n" + CHUNKED + b"5\r\nhello\r\n0\r\n\r\n"
    assert refused(data) == "Not a valid HTTP/1.0 request: Transfer-Encoding needs HTTP/1.1."


@pytest.mark.parametrize(
    "chunks",
    [
        b"5 \r\nhello\r\n0\r\n\r\n", b" 5\r\nhello\r\n0\r\n\r\n", b"5 ;a\r\nhello\r\n0\r\n\r\n",
        b"0x5\r\nhello\r\n0\r\n\r\n", b"+5\r\nhello\r\n0\r\n\r\n", b"5g\r\nhello\r\n0\r\n\r\n",
        b"5_0\r\nhello\r\n0\r\n\r\n", b"\xb2\r\nhe\r\n0\r\n\r\n", b"\r\n5\r\nhello\r\n0\r\n\r\n",
        b"5\r\nhello0\r\n\r\n", b"5\r\nhello\n0\r\n\r\n", b"5\r\nhello\r\n0\n\n", b"5\r\nhello\r\n0\r\n\n",
        b"5\r\nhello\r\n-0\r\n\r\n", b"10000000000000005\r\nhello\r\n0\r\n\r\n",
        b"5;\x00\r\nhello\r\n0\r\n\r\n", b"5;a\nb\r\nhello\r\n0\r\n\r\n", b"5;a\rb\r\nhello\r\n0\r\n\r\n",
        b'5;a="x\r\ny"\r\nhello\r\n0\r\n\r\n', b"5\r\nhello\r\n0\r\nx : y\r\n\r\n",
        b"5\r\nhello\r\n0\r\nx\r\n\r\n", b"5\r\nhello\r\n0\r\nx: a\r\n b\r\n\r\n",
    ],
)  # fmt: skip
def test_a_chunk_that_two_parsers_could_read_differently_is_refused(chunks: bytes) -> None:
    assert refused(HEAD + CHUNKED + chunks).startswith("Not a valid HTTP/1.1 request: ")


@pytest.mark.parametrize(
    "line",
    [
        b"x\t: a", b"x : a", b"content-length : 0", b"x\x00: a", b"x\xe9: a", b"x y: a", b": a", b"abc",
        b"x(: a",
        b"x: a\x01b", b"x: a\x7fb", b"x: a\x00", b"x: a\r\n\tb", b"x: a\nb: c", b"x: \x1b[0m",
    ],
)  # fmt: skip
def test_a_header_line_that_two_parsers_could_read_differently_is_refused(line: bytes) -> None:
    assert refused(HEAD + line + b"\r\n" + NO_BODY).startswith("Not a valid HTTP/1.1 request: ")


def test_bytes_beyond_ascii_in_a_value_are_kept_as_they_are() -> None:
    # obs-text, RFC 9110, section 5.5
    incoming = only(HEAD + b"x: caf\xc3\xa9 \xff\r\n" + NO_BODY)
    assert (b"x", b"caf\xc3\xa9 \xff") in incoming.head.headers
