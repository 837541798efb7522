import pytest

from gateway.wire.opaque import SEARCHED_BYTES, is_opaque, model_in, renamed

FORM = b"multipart/form-data; boundary=XyZ"
FILE = b'--XyZ\r\nContent-Disposition: form-data; name="file"; filename="%b"\r\n\r\n%b\r\n'
MODEL = b'--XyZ\r\nContent-Disposition: form-data; name="model"\r\n\r\n%b\r\n'
END = b"--XyZ--\r\n"


def body(*parts: bytes) -> bytes:
    return b"".join(parts) + END


@pytest.mark.parametrize(
    "content_type",
    [FORM, b"audio/wav", b"text/plain", b"application/octet-stream", b"application/jsonp", b"nonsense"],
)
def test_what_says_that_it_is_no_json_is_opaque(content_type: bytes) -> None:
    assert is_opaque(content_type, body())


@pytest.mark.parametrize(
    "content_type",
    [
        b"",
        b"application/json",
        b"Application/JSON; charset=utf-8",
        b"application/vnd.api+json",
        b"application/problem+json;x=y",
    ],
)
def test_json_and_what_says_nothing_is_not(content_type: bytes) -> None:
    assert not is_opaque(content_type, b"{}")


def test_what_curl_calls_a_form_is_judged_by_its_first_byte() -> None:
    assert not is_opaque(b"application/x-www-form-urlencoded", b' {"model":"m"}')
    assert is_opaque(b"application/x-www-form-urlencoded", b"model=m")


@pytest.mark.parametrize(
    "part",
    [
        MODEL % b"org/whisper",
        b"--XyZ\r\ncontent-disposition: form-data; NAME=model\r\n\r\norg/whisper\r\n",
        b"--XyZ\r\nContent-Type: text/plain; charset=utf-8\r\n"
        b'Content-Disposition: form-data; name="model"\r\n'
        b"Content-Length: 11\r\n\r\norg/whisper\r\n",
    ],
    ids=["browser", "bare", "with more headers"],
)
@pytest.mark.parametrize("quoted", [FORM, b'Multipart/Form-Data; charset=x; Boundary="XyZ"'])
def test_the_model_is_a_field_of_the_form(part: bytes, quoted: bytes) -> None:
    wave = FILE % (b"a.wav", b"RIFF")
    for data in (body(part, wave), body(wave, part)):
        assert model_in(data, quoted) == "org/whisper"


def test_the_field_is_found_before_and_after_a_large_file() -> None:
    wave = FILE % (b"a.wav", bytes(10 * SEARCHED_BYTES))
    assert model_in(body(MODEL % b"m", wave), FORM) == "m"
    assert model_in(body(wave, MODEL % b"m"), FORM) == "m"


def test_the_field_may_stand_where_the_searched_ends_meet() -> None:
    for size in range(SEARCHED_BYTES - 200, SEARCHED_BYTES + 20):
        wave = FILE % (b"a.wav", bytes(size))
        assert model_in(body(wave, MODEL % b"m", FILE % (b"b", b"")), FORM) == "m"


def test_a_field_between_two_large_files_is_too_far_away() -> None:
    wave = FILE % (b"a.wav", bytes(2 * SEARCHED_BYTES))
    assert model_in(body(wave, MODEL % b"m", wave), FORM) == ""


@pytest.mark.parametrize(
    "data",
    [
        b"",
        body(),
        body(FILE % (b"model", b"m")),
        body(FILE % (b"x", b'--other\r\nContent-Disposition: form-data; name="model"\r\n\r\nm\r\n--other')),
        body(b'--XyZ\r\nContent-Disposition: form-data; name="model_name"\r\n\r\nm\r\n'),
        MODEL[:-2] % b"never ends",
        body(MODEL % (b"x" * 5000)),
        b'--XyZ\r\nContent-Disposition: form-data; name="model"',
    ],
)
def test_what_is_not_the_field_is_no_model(data: bytes) -> None:
    assert model_in(data, FORM) == ""


@pytest.mark.parametrize(
    "content_type", [b"multipart/form-data", b"audio/wav", b"multipart/mixed; boundary=XyZ"]
)
def test_only_a_form_with_a_boundary_is_searched(content_type: bytes) -> None:
    assert model_in(body(MODEL % b"m"), content_type) == ""


def test_a_name_in_another_encoding_is_no_failure() -> None:
    assert model_in(body(MODEL % b"\xff"), FORM) == "\ufffd"


def test_an_alias_is_replaced_in_its_field_and_nowhere_else() -> None:
    wave = FILE % (b"fast", b"fast\r\nfast")
    given = body(MODEL % b"fast", wave)
    assert renamed(given, FORM, "org/m:\u00e9") == body(MODEL % "org/m:\u00e9".encode(), wave)
    assert renamed(body(wave), FORM, "m") == body(wave)
