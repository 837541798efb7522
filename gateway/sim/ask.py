"""Reads the bodies of inference requests: what they ask of the model, or how this kind refuses them."""

from collections.abc import Mapping

import msgspec
from msgspec import Struct

from gateway.sim.settings import SimSettings
from gateway.sim.tokens import render_chat, render_tool_call, text_of, tokenize, words

# OpenAI's old default for completions; here for every answer without a limit.
DEFAULT_MAX_TOKENS = 16
_TOOL_ARGUMENTS = '{"city":"Paris"}'


class Refused(Exception):
    """The engine answers with an error: `status` and the JSON `body` in this kind's shape."""

    def __init__(self, status: int, body: Mapping[str, object]) -> None:
        super().__init__(status)
        self.status = status
        self.body = body


class ToolCall(Struct, frozen=True, kw_only=True):
    name: str
    arguments: str


class Ask(Struct, frozen=True, kw_only=True):
    """One inference request. `api` is chat, completion or embedding.

    `outputs` and `pieces` are the tokens of each answer and the text that each token adds.
    """

    api: str
    prompts: tuple[tuple[int, ...], ...]
    outputs: tuple[tuple[int, ...], ...]
    pieces: tuple[tuple[str, ...], ...]
    n: int
    salt: str
    finish_reason: str
    tool_call: ToolCall | None
    stream: bool
    include_usage: bool
    wants_cache_details: bool


def decode_body(raw: bytes, settings: SimSettings) -> dict[str, object]:
    """The JSON object of a body. Raises Refused if it is none."""
    try:
        return msgspec.json.decode(raw, type=dict[str, object])
    except msgspec.DecodeError as error:
        raise bad_request(settings, f"the body is not a JSON object: {error}", "body") from error


MAX_ANSWERS = 1024
"""More than any engine runs at once; an unbounded number would freeze the program that asks for it."""


def read_ask(api: str, body: Mapping[str, object], settings: SimSettings) -> Ask:
    """What `body` asks for. Raises Refused."""
    _check_model(body, settings)
    prompts = _prompts(api, body, settings)
    longest = max(len(prompt) for prompt in prompts)
    if longest > settings.context_tokens - (0 if api == "embedding" else 1):
        raise _too_long(settings, longest)
    n = _count(body, ("n",), 1, settings)
    if n > MAX_ANSWERS:
        raise bad_request(settings, f"Field 'n': must not exceed {MAX_ANSWERS}", "n")
    if settings.kind == "llamacpp" and n > settings.slots:
        raise bad_request(settings, f"Field 'n': must not exceed the {settings.slots} slots", "n")
    call = _tool_call(body) if api == "chat" else None
    limit = _count(body, ("max_completion_tokens", "max_tokens"), 0, settings)
    answers = _answers(
        api, prompts, n, min(limit or DEFAULT_MAX_TOKENS, settings.context_tokens - longest), call
    )
    options = body.get("stream_options")
    return Ask(
        api=api,
        prompts=prompts,
        outputs=tuple(output for output, _ in answers),
        pieces=tuple(pieces for _, pieces in answers),
        n=n,
        salt=str(body.get("cache_salt") or ""),
        finish_reason="tool_calls" if call else "length" if limit else "stop",
        tool_call=call,
        stream=body.get("stream") is True,
        include_usage=isinstance(options, dict) and options.get("include_usage") is True,
        wants_cache_details=body.get("return_cached_tokens_details") is True,
    )


def chat_text(body: Mapping[str, object], settings: SimSettings) -> str:
    """The rendered prompt of a body with `messages`. Raises Refused."""
    messages = body.get("messages")
    if not isinstance(messages, list) or not messages or not all(isinstance(m, dict) for m in messages):
        raise bad_request(settings, "'messages' is required", "messages")
    tools = body.get("tools")
    return render_chat(
        messages,
        tools if isinstance(tools, list) else (),
        add_generation_prompt=body.get("add_generation_prompt") is not False,
    )


def bad_request(settings: SimSettings, message: str, param: str | None) -> Refused:
    return Refused(400, error_body(settings.kind, 400, message, param))


def error_body(kind: str, status: int, message: str, param: str | None = None) -> Mapping[str, object]:
    """An error in this kind's shape. SGLang's is flat, llama.cpp's has no `param`."""
    names = {
        "vllm": {400: "BadRequestError", 404: "NotFoundError", 503: "ServiceUnavailableError"},
        "sglang": {400: "BadRequestError", 404: "NotFoundError", 503: "503"},
        "llamacpp": {400: "invalid_request_error", 404: "not_found_error", 503: "unavailable_error"},
    }[kind]
    name = names.get(status, "server_error" if kind == "llamacpp" else "InternalServerError")
    if kind == "sglang":
        return {"object": "error", "message": message, "type": name, "param": param, "code": status}
    if kind == "llamacpp":
        return {"error": {"code": status, "message": message, "type": name}}
    return {"error": {"message": message, "type": name, "param": param, "code": status}}


def _check_model(body: Mapping[str, object], settings: SimSettings) -> None:
    name = body.get("model")
    # llama-server and SGLang serve whatever name they are asked for.
    if settings.kind == "vllm" and name is not None and name != settings.model:
        message = f"The model `{name}` does not exist. Valid aliases: {settings.model}."
        raise Refused(404, error_body("vllm", 404, message, "model"))


def _too_long(settings: SimSettings, prompt_tokens: int) -> Refused:
    limit = settings.context_tokens
    if settings.kind == "llamacpp":
        message = (
            f"request ({prompt_tokens} tokens) exceeds the available context size ({limit} tokens), "
            "try increasing it"
        )
        error = {"code": 400, "message": message, "type": "exceed_context_size_error"}
        return Refused(400, {"error": {**error, "n_prompt_tokens": prompt_tokens, "n_ctx": limit}})
    message = (
        f"This model's maximum context length is {limit} tokens. "
        f"However, your prompt contains {prompt_tokens} input tokens."
    )
    return bad_request(settings, message, "input_tokens")


def _prompts(api: str, body: Mapping[str, object], settings: SimSettings) -> tuple[tuple[int, ...], ...]:
    if api == "chat":
        return (tokenize(chat_text(body, settings)),)
    field = "input" if api == "embedding" else "prompt"
    prompts = _token_lists(body.get(field))
    if not prompts:
        raise bad_request(settings, f"'{field}' is required", field)
    # An engine puts at least a start token before an empty prompt.
    return tuple(prompt or (0,) for prompt in prompts)


def _token_lists(value: object) -> tuple[tuple[int, ...], ...]:
    """The prompts of a str, [str], [int] or [[int]]; none if it is anything else."""
    if isinstance(value, str):
        return (tokenize(value),)
    if not isinstance(value, list) or not value:
        return ()
    if all(type(item) is int for item in value):
        return (tuple(value),)
    lists = []
    for item in value:
        if isinstance(item, str):
            lists.append(tokenize(item))
        elif isinstance(item, list) and all(type(token) is int for token in item):
            lists.append(tuple(item))
        else:
            return ()
    return tuple(lists)


def _count(body: Mapping[str, object], names: tuple[str, ...], default: int, settings: SimSettings) -> int:
    for name in names:
        value = body.get(name)
        if value is None:
            continue
        if settings.kind == "llamacpp" and value == -1:
            return default
        if type(value) is not int or value < 1:
            raise bad_request(settings, f"{name} must be at least 1, got {value}.", name)
        return value
    return default


def _tool_call(body: Mapping[str, object]) -> ToolCall | None:
    tools, messages = body.get("tools"), body.get("messages")
    if not isinstance(tools, list) or not tools or not isinstance(messages, list):
        return None
    last = messages[-1]
    if last.get("role") != "user" or "weather" not in text_of(last.get("content")):
        return None
    function = tools[0].get("function") if isinstance(tools[0], dict) else None
    name = function.get("name") if isinstance(function, dict) else None
    return ToolCall(name=str(name), arguments=_TOOL_ARGUMENTS) if name else None


def _answers(
    api: str, prompts: tuple[tuple[int, ...], ...], n: int, limit: int, call: ToolCall | None
) -> list[tuple[tuple[int, ...], tuple[str, ...]]]:
    if api == "embedding":
        return [((), ()) for _ in prompts]
    if call is not None:
        return [_tool_answer(call) for _ in range(n)]
    return [_text_answer(prompt, choice, limit) for prompt in prompts for choice in range(n)]


def _text_answer(prompt: tuple[int, ...], choice: int, limit: int) -> tuple[tuple[int, ...], tuple[str, ...]]:
    pieces = words(prompt, choice, limit)
    return tuple(tokenize(piece)[0] for piece in pieces), pieces


def _tool_answer(call: ToolCall) -> tuple[tuple[int, ...], tuple[str, ...]]:
    """The arguments come in pieces of four letters with the last tokens."""
    output = tokenize(render_tool_call(call.name, call.arguments))
    pieces = [call.arguments[at : at + 4] for at in range(0, len(call.arguments), 4)]
    return output, ("",) * (len(output) - len(pieces)) + tuple(pieces)
