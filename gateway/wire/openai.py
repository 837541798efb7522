"""What routing needs from a body, and the canonical prompts of chats and completions.

Unknown fields of a chat's message are kept in its prompt, since a template may show them.
"""

from array import array
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from msgspec import Struct

from gateway.wire import anthropic, responses
from gateway.wire.body import compact, model_of, parse_object
from gateway.wire.errors import BadRequest
from gateway.wire.prompt import (
    CALL,
    EXTRA,
    FIELD,
    HEAD_FIELDS,
    MESSAGE,
    REASONING,
    SYSTEM_ROLES,
    TOOLS,
    call,
    part,
    plain,
    role_text,
    seen,
    tools_text,
    utf8,
)
from gateway.wire.workload import CHAT, FIELDS, LONG_BYTES, OTHER, by_fields, by_prompt

_NO_PROMPT_FIELDS = frozenset((
    "role", "content", "tool_calls", "tool_call_id", "id", "function_call", "cache_control",
))  # fmt: skip
_RENDERED_FIELDS = frozenset((*HEAD_FIELDS, "tools", "functions"))
_OPTION_FIELDS = FIELDS | {"stream_options", "cache_salt", "n", "prompt_cache_key", "metadata"}
_CALL_FIELDS = ["name", "arguments"]
# A tuple: a role may be anything.
_ROLES = ("user", "assistant", "tool", "system")
_THOUGHTS = ("reasoning", REASONING)
_MAX_WIDTH = 100_000


class Ask(Struct, frozen=True, kw_only=True):
    """What a body asks for. `canonical` is the first prompt in canonical bytes, `prompt_bytes` the length
    of all of them; `width` the sequences that the engine runs. `include_usage` is None where not given."""

    model: str
    canonical: bytes = b""
    prompt_bytes: int = 0
    width: int = 1
    prompts: int = 1
    salt: str = ""
    stream: bool = False
    include_usage: bool | None = None
    token_ids: bool = False
    session: str = ""
    workload: str = OTHER


def _never(_: str) -> bool:
    return False


def read(api: str, body: bytes, tools_first: Callable[[str], bool] = _never) -> Ask:
    """Parse `body` for `api` (see `wire.paths`). `tools_first` says of a model, as asked for, whether its
    template shows tools before the system prompt. Raises `BadRequest`."""
    return read_object(api, parse_object(body), len(body), tools_first)


def read_object(
    api: str, data: dict[str, Any], body_bytes: int, tools_first: Callable[[str], bool] = _never
) -> Ask:
    """The same of a body of `body_bytes` that was parsed before. Raises `BadRequest`."""
    reader = _READERS.get(api)
    try:
        if reader is None:
            canonical, total_bytes, count, token_ids = _NO_PROMPT
        else:
            first = "tools" in data and tools_first(model_of(data))
            canonical, total_bytes, count, token_ids = reader(data, first)
    except RecursionError:
        raise BadRequest("The request body is nested too deeply to be read.") from None
    include, choices, session = None, 1, ""
    salt: Any = ""
    workload = CHAT
    if api != "chat" or total_bytes >= LONG_BYTES:
        # Of a prompt that is not read the body is the only measure.
        workload = by_prompt(api, canonical, body_bytes if reader is None else total_bytes)
    # One look for all that most bodies lack.
    if not _OPTION_FIELDS.isdisjoint(data):
        options, salt, n = data.get("stream_options"), data.get("cache_salt"), data.get("n")
        include = options.get("include_usage") if isinstance(options, dict) else None
        choices = 1 if n is None else _choices(n)
        session = _session(data)
        workload = by_fields(api, data) or workload
    return Ask(
        model=model_of(data),
        canonical=canonical,
        prompt_bytes=total_bytes,
        width=0 if api in _NO_SLOT else min(_MAX_WIDTH, count * choices),
        prompts=count,
        salt=salt if isinstance(salt, str) else "",
        stream=data.get("stream") is True,
        include_usage=include if isinstance(include, bool) else None,
        token_ids=token_ids,
        session=session,
        workload=workload,
    )


_Prompt = tuple[bytes, int, int, bool]
"""The canonical bytes of the first prompt, the length of all, their count, and whether they are token ids."""

_NO_PROMPT: _Prompt = (b"", 0, 1, False)


def _chat(data: Mapping[str, Any], tools_first: bool) -> _Prompt:
    canonical = chat_canonical(data, tools_first)
    return canonical, len(canonical), 1, False


def chat_canonical(data: Mapping[str, Any], tools_first: bool = False) -> bytes:
    """The canonical prompt of a chat body."""
    messages, tools = data.get("messages"), None
    parts: list[str] = []
    if not _RENDERED_FIELDS.isdisjoint(data):
        parts += [f"{FIELD}{it}{compact(data[it])}" for it in HEAD_FIELDS if data.get(it) is not None]
        tools = data.get("tools") or data.get("functions")
        if tools and tools_first:
            parts += (TOOLS, tools_text(tools))
            tools = None
    for item in messages if isinstance(messages, list) else ():
        if tools and (item.get("role") if isinstance(item, dict) else None) not in SYSTEM_ROLES:
            parts += (TOOLS, tools_text(tools))
            tools = None
        if not isinstance(item, dict):
            parts += (MESSAGE, compact(item))
            continue
        content, role = item.get("content"), item.get("role")
        # As `content` does it, without a call.
        if not isinstance(content, str):
            content = "" if content is None else _content(content)
        elif MESSAGE in content:
            content = plain(content)
        has_more = len(item) > 2 or not content
        if role not in _ROLES:
            role, has_more = role_text(item.get("role", "")), True
        parts += (MESSAGE, role, FIELD, content)
        if has_more:
            _extras(item, parts)
    if tools:
        parts += (TOOLS, tools_text(tools))
    return utf8("".join(parts))


def _content(content: Any) -> str:
    if not isinstance(content, list):
        return compact(content)
    return "\n".join(map(part, content))


def _extras(item: Mapping[str, Any], parts: list[str]) -> None:
    if not _NO_PROMPT_FIELDS.issuperset(item):
        if "reasoning" in item:
            item = _with_reasoning(item)
        for field in sorted(item.keys() - _NO_PROMPT_FIELDS):
            value = item[field]
            if value is not None:
                parts += (EXTRA, plain(field), plain(value) if isinstance(value, str) else compact(value))
    calls = item.get("tool_calls")
    if isinstance(calls, list):
        for it in calls:
            function = it.get("function", it) if isinstance(it, dict) else it
            is_plain = (
                type(function) is dict and [*function] == _CALL_FIELDS and type(function["arguments"]) is str
            )
            parts += (CALL, compact(function) if is_plain else _call(function))
    if item.get("function_call") is not None:
        parts += (CALL, _call(item["function_call"]))


def _with_reasoning(item: Mapping[str, Any]) -> Mapping[str, Any]:
    """vLLM 0.32 answers with `reasoning` and takes either name; two that differ are both kept."""
    thoughts = item.get(REASONING)
    if thoughts is not None and thoughts != item["reasoning"]:
        return item
    return {REASONING: item["reasoning"], **{it: item[it] for it in item if it not in _THOUGHTS}}


def _call(function: Any) -> str:
    if not isinstance(function, dict):
        return compact(function)
    if "name" in function:
        return call(function["name"], function.get("arguments"))
    # A custom tool's, or one not known yet.
    return compact(seen(function))


def _messages(data: Mapping[str, Any], tools_first: bool) -> _Prompt:
    canonical = anthropic.canonical(data, tools_first)
    return canonical, len(canonical), 1, False


def _responses(data: Mapping[str, Any], tools_first: bool) -> _Prompt:
    canonical = responses.canonical(data, tools_first)
    return canonical, len(canonical), 1, False


def _completion(data: Mapping[str, Any], _: bool) -> _Prompt:
    prompt = data.get("prompt")
    if not isinstance(prompt, list) or int in map(type, prompt):
        return _one(prompt)
    return _several(map(_one, prompt))


def _one(prompt: Any) -> _Prompt:
    if isinstance(prompt, str):
        text = utf8(prompt)
        return text, len(text), 1, False
    if isinstance(prompt, list) and _is_ids(prompt):
        try:
            packed = array("I", prompt).tobytes()
        except OverflowError:
            packed = b""
        return packed, len(packed), 1, True
    # llama.cpp takes ids and text mixed in one prompt, and objects with a prompt and its images.
    text = utf8(compact(prompt)) if prompt else b""
    return text, len(text), 1, False


def _several(prompts: Iterable[_Prompt]) -> _Prompt:
    every = list(prompts)
    if not every:
        return _NO_PROMPT
    canonical, _, _, token_ids = every[0]
    return canonical, sum(total_bytes for _, total_bytes, _, _ in every), len(every), token_ids


def _is_ids(prompt: list[Any]) -> bool:
    return set(map(type, prompt)) == {int}


def _embedding(data: Mapping[str, Any], _: bool) -> _Prompt:
    given = data.get("input")
    count = len(given) if isinstance(given, list) and given and not _is_ids(given) else 1
    return b"", 0, count, False


def _documents(data: Mapping[str, Any], _: bool) -> _Prompt:
    given = data.get("documents", data.get("text_2"))
    return b"", 0, len(given) if isinstance(given, list) and given else 1, False


def _choices(n: object) -> int:
    if isinstance(n, float) and n.is_integer():
        n = int(n)
    return n if type(n) is int and n > 1 else 1


def _session(data: Mapping[str, Any]) -> str:
    """The body fields that name a session (`prompt_cache_key`; Claude Code packs its own into `metadata`)."""
    key, metadata = data.get("prompt_cache_key"), data.get("metadata")
    if isinstance(key, str):
        return key
    if isinstance(metadata, dict):
        for field in ("user_id", "session_id"):
            if isinstance(metadata.get(field), str):
                return str(metadata[field])
    return ""


_READERS: dict[str, Callable[[Mapping[str, Any], bool], _Prompt]] = {
    "chat": _chat,
    "completions": _completion,
    "embeddings": _embedding,
    "rerank": _documents,
    "score": _documents,
    "messages": _messages,
    "responses": _responses,
}
_NO_SLOT = frozenset(("tokenize", "detokenize", "count_tokens"))
