"""Reading a request body: tolerant of whatever an engine may accept, strict about what the gateway needs."""

import json
from typing import Any

import msgspec

from gateway.wire.errors import BadRequest

_decode = msgspec.json.Decoder().decode


def parse_object(body: bytes) -> dict[str, Any]:
    """The body as a JSON object.

    msgspec refuses NaN, lone surrogates and a byte order mark, which Python engines take, so `json`
    has the last word. Raises `BadRequest` for anything that is no object.
    """
    try:
        value = _decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        value = _lenient(body)
    if not isinstance(value, dict):
        kind = {list: "an array", str: "a string", type(None): "null"}.get(type(value), "a number or boolean")
        raise BadRequest(f"The request body must be a JSON object, not {kind}.")
    return value


def _lenient(body: bytes) -> Any:
    if not body.strip():
        raise BadRequest("The request body is empty; send a JSON object.")
    try:
        return json.loads(body)
    except RecursionError:
        raise BadRequest("The request body is nested too deeply to be read.") from None
    except ValueError as error:
        raise BadRequest(f"The request body is not valid JSON: {error}.") from None


def model_of(data: dict[str, Any]) -> str:
    """The model asked for, empty where the client named none. Raises `BadRequest` if it is no string."""
    model = data.get("model")
    if model is None:
        return ""
    if not isinstance(model, str):
        raise BadRequest(f"'model' must be a string, not {shown(model)}.", param="model")
    return model


def shown(value: object) -> str:
    """A value for an error message: short, and never a whole prompt."""
    if isinstance(value, list | dict):
        return "an array" if isinstance(value, list) else "an object"
    text = repr(value[:60] if isinstance(value, str) else value)
    return text if len(text) <= 60 else text[:57] + "..."


def compact(value: object) -> str:
    """JSON text of a decoded value in its own key order, whatever white space it came with."""
    try:
        return msgspec.json.encode(value).decode()
    except (UnicodeEncodeError, OverflowError):
        return json.dumps(value, ensure_ascii=True, separators=(",", ":"))
