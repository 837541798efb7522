"""The workload class of a request, from fields that are parsed already; prompt text is never searched."""

from collections.abc import Mapping
from typing import Any

from gateway.wire.paths import STREAMING

JSON, CODE, LONG, CHAT, OTHER = "json", "code", "long", "chat", "other"

LONG_BYTES = 32 * 1024
"""A prompt of that size is long: 8,192 tokens at four bytes each, as prompts in ids are counted. That is a
whole step of vLLM's on an 80 GB GPU (`max_num_batched_tokens`), so nothing else is computed beside it, and
4 s at the rate that an engine is taken to have until it has shown one (`core/router.py`)."""

# What asks for output of a given form: OpenAI; vLLM, the old names too; SGLang; llama.cpp, TGI; Anthropic.
_FORM_FIELDS = frozenset((
    "response_format", "structured_outputs", "guided_json", "guided_regex", "guided_choice", "guided_grammar",
    "json_schema", "regex", "ebnf", "structural_tag", "grammar", "output_format",
    "text",  # the Responses API has the form inside
))  # fmt: skip
_FILL_FIELDS = frozenset(("suffix", "input_prefix", "input_suffix"))
FIELDS = _FORM_FIELDS | _FILL_FIELDS | {"tools"}
"""Of a body without any of these `by_fields` has nothing to say."""

# How prompts for fill-in-the-middle begin (StarCoder; Qwen and CodeGemma; DeepSeek; Code Llama; Codestral),
# or with the files of a repository before them.
_FILL_MARKS = (
    b"<fim_prefix>", b"<|fim_prefix|>", "<\uff5cfim\u2581begin\uff5c>".encode(), b"<PRE>",
    b"[SUFFIX]", b"[PREFIX]", b"<|repo_name|>", b"<|file_sep|>", b"<fim_suffix>", b"<|fim_suffix|>",
)  # fmt: skip

# Tools by which agents edit files. Those that read and run do not count: many agents have them that write no
# code.
_EDITING_TOOLS = frozenset((
    "Edit", "MultiEdit", "NotebookEdit",  # Claude Code
    "apply_patch",  # Codex, OpenCode with OpenAI's models
    "edit",  # OpenCode, Qwen Code
    "str_replace_editor", "str_replace_based_edit_tool",  # Anthropic's text editor, OpenHands, SWE-agent
    "replace_in_file", "write_to_file", "apply_diff",  # Cline, Roo Code
    "edit_file", "search_replace",  # Zed, Mistral Vibe
    "edit_existing_file", "single_find_and_replace",  # Continue
    "insert_edit_into_file", "replace_string_in_file",  # GitHub Copilot
))  # fmt: skip
_LOOKED_AT_TOOLS = 64


def by_fields(api: str, data: Mapping[str, Any]) -> str:
    """`json` if the output's form is given, else `code` if a file is completed or edited, else empty. It goes
    before `by_prompt`, since the form of the output tells more than the length of the prompt."""
    if api not in STREAMING or FIELDS.isdisjoint(data):
        return ""
    if _has_form(data):
        return JSON
    return CODE if _fills(data) or _edits(data.get("tools")) else ""


def by_prompt(api: str, prompt: bytes, prompt_bytes: int) -> str:
    """`code` if it begins as prompts for filling in do, `long` from `LONG_BYTES` on, else `chat`. `other` for
    what does not generate text, or is of an API that is not known to."""
    if api not in STREAMING:
        return OTHER
    if api == "completions" and prompt.startswith(_FILL_MARKS):
        return CODE
    return LONG if prompt_bytes >= LONG_BYTES else CHAT


def _has_form(data: Mapping[str, Any]) -> bool:
    return any(_is_form(field, data[field]) for field in _FORM_FIELDS.intersection(data))


def _is_form(field: str, value: Any) -> bool:
    if field == "text":
        value = value.get("format") if isinstance(value, dict) else None
    return bool(value) and not (isinstance(value, dict) and value.get("type") == "text")


def _fills(data: Mapping[str, Any]) -> bool:
    return any(isinstance(data[field], str) and data[field] for field in _FILL_FIELDS.intersection(data))


def _edits(tools: object) -> bool:
    """Whether one of the first tools is for editing files."""
    if not isinstance(tools, list):
        return False
    first = tools[:_LOOKED_AT_TOOLS]
    try:
        return not _EDITING_TOOLS.isdisjoint([tool["function"]["name"] for tool in first])
    except (KeyError, TypeError):
        # Responses and Anthropic have the name in the tool itself; others may have no name, or an odd one.
        names = [_name(tool) for tool in first if isinstance(tool, dict)]
        return any(isinstance(name, str) and name in _EDITING_TOOLS for name in names)


def _name(tool: Mapping[str, Any]) -> object:
    function = tool.get("function")
    return function.get("name") if isinstance(function, dict) else tool.get("name")
