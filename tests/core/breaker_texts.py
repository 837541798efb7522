"""Changes of what a client's conversations share: system texts and tools."""

import copy

from breaker_bodies import Body, Json, set_text, text_of, tool_output
from breaker_pairs import BREAKS, Pair, breaks, pair

IN_SYSTEM = [
    # name, before, after, kind
    ("iso_date", "Today's date: 2026-12-01", "Today's date: 2026-12-02", "timestamp"),
    ("iso_time", "Now: 2026-12-01T10:15:30.123Z", "Now: 2026-12-01T10:16:02.904Z", "timestamp"),
    ("iso_space", "[2026-12-01 10:15:30,123] session", "[2026-12-01 10:16:11,001] session", "timestamp"),
    (
        "rfc_2822",
        "Date: Tue, 01 Dec 2026 10:15:00 +0000",
        "Date: Wed, 02 Dec 2026 08:01:59 +0000",
        "timestamp",
    ),
    ("js_date", "The date is Tue Dec 01 2026.", "The date is Wed Dec 02 2026.", "timestamp"),
    (
        "js_time",
        "Now Tue Dec 01 2026 10:15:00 GMT+0100 (CET)",
        "Now Wed Dec 02 2026 09:00:07 GMT+0100 (CET)",
        "timestamp",
    ),
    ("epoch_s", "started_at=1796032517", "started_at=1796032999", "timestamp"),
    ("epoch_ms", '{"ts": 1796032517693}', '{"ts": 1796032519001}', "timestamp"),
    ("time_only", "It is 10:15 AM for the user.", "It is 3:42 PM for the user.", "timestamp"),
    ("us_locale", "Local: 12/1/2026, 9:05:33 AM", "Local: 12/1/2026, 11:15:02 PM", "timestamp"),
    ("german", "Heute ist der 1. Dezember 2026.", "Heute ist der 12. Dezember 2026.", "timestamp"),
    ("german_dots", "Datum: 01.12.2026", "Datum: 02.12.2026", "timestamp"),
    (
        "french",
        "Nous sommes le mardi 1 décembre 2026",
        "Nous sommes le mercredi 2 décembre 2026",
        "timestamp",
    ),
    ("chinese", "今天是2026年12月1日", "今天是2026年12月12日", "timestamp"),
    ("long_date", "Current date: December 1, 2026", "Current date: November 30, 2026", "timestamp"),
    ("ordinal", "It's the 1st of December 2026", "It's the 2nd of December 2026", "timestamp"),
    ("weekday", "Today is Monday.", "Today is Tuesday.", "timestamp"),
    ("month_only", "The month is November.", "The month is December.", "timestamp"),
    ("relative", "Index refreshed 5 minutes ago", "Index refreshed 2 hours ago", "timestamp"),
    ("compact_date", "build stamp 20261201T101500Z", "build stamp 20261202T000000Z", "timestamp"),
    (
        "uuid",
        "Session 550e8400-e29b-41d4-a716-446655440000",
        "Session 123e4567-e89b-12d3-a456-426614174000",
        "random_id",
    ),
    ("ulid", "trace 01ARZ3NDEKTSV4RRFFQ69G5FAV", "trace 01BX5ZZKBKACTAV9WEVGEMMVRZ", "random_id"),
    ("nanoid", "<run V1StGXR8_Z5jdHi6B-myT>", "<run 9kQ2LmXw7_pRs4TuV-a1B>", "random_id"),
    (
        "hex",
        "nonce=4bf92f3577b34da6a3ce929d0e0e4736",
        "nonce=00f067aa0ba902b7a3ce929d0e0e4736",
        "random_id",
    ),
    ("request_id", "request req_8f3kd93ka2", "request req_1pq74mz8x0", "random_id"),
    ("short_id", "session id: 9f8e7d6c", "session id: 0a1b2c3d", "random_id"),
    ("sha", "HEAD is at a1b2c3d", "HEAD is at 9f0e1d2", "random_id"),
    ("cch", "cc_entrypoint=cli; cch=eb6c6;", "cc_entrypoint=cli; cch=01234;", "random_id"),
    (
        "base64",
        "token dGhpcyBpcyBhIHRlc3Qgb2YgMTIzNDU2Nzg5MA==",
        "token YW5vdGhlciB2YWx1ZSBvZiA5ODc2NTQzMjEwMQ==",
        "random_id",
    ),
    ("turn", "This is turn 3 of at most 50.", "This is turn 4 of at most 50.", "counter"),
    ("budget", "budget: 123456 tokens left", "budget: 98765 tokens left", "counter"),
    ("cost", "Cost so far: $0.0345", "Cost so far: $0.1201", "counter"),
    ("percent", "Context used: 9%", "Context used: 12%", "counter"),
    ("commas", "You have 1,234 credits.", "You have 987 credits.", "counter"),
    ("cwd", "Working directory: /home/dev/alpha", "Working directory: /home/dev/shop/backend", "other"),
    ("branch", "Current branch: main", "Current branch: feature/faster-index", "other"),
]


def _in_system(name: str, before: str, after: str, kind: str) -> None:
    def same(body: Body) -> Pair:
        _, _, part = body.system()
        first = body.copy().put_in_system(before)
        second = body.copy().put_in_system(after).talk(1)
        return Pair(name, first, second, kind, part)

    def other(body: Body) -> Pair:
        _, _, part = body.system()
        first = body.copy().put_in_system(before)
        second = body.copy().put_in_system(after).ask("Write a parser for the new format, please.")
        return Pair(f"{name}/other session", first, second, kind, part, other_session=True)

    BREAKS.extend((same, other))


for _row in IN_SYSTEM:
    _in_system(*_row)


CHUNKS = [tool_output(100 + n, 12).replace(" = ", " is ") for n in range(6)]


def _joined(chunks: list[str], form: str = "{text}") -> str:
    return "\n\n".join(form.format(n=n + 1, text=text) for n, text in enumerate(chunks))


@breaks
def chunks_shuffled_in_the_system_text(body: Body) -> Pair:
    after = body.copy().put_in_system(_joined([CHUNKS[at] for at in (2, 0, 4, 1, 5, 3)])).talk(1)
    return pair("chunks", body.copy().put_in_system(_joined(CHUNKS)), after, "chunk_order", body.system()[2])


@breaks
def numbered_chunks_shuffled(body: Body) -> Pair:
    form = "[{n}] {text}"
    after = body.copy().put_in_system(_joined(CHUNKS[::-1], form)).ask("And what of the index?")
    before = body.copy().put_in_system(_joined(CHUNKS, form))
    return pair("numbered chunks", before, after, "chunk_order", body.system()[2], other_session=True)


@breaks
def examples_shuffled(body: Body) -> Pair:
    form = "<example>\nUser: question {n}\nAssistant: {text}\n</example>"
    after = body.copy().put_in_system(_joined([CHUNKS[at] for at in (1, 0, 2, 3)], form)).talk(1)
    return pair(
        "examples",
        body.copy().put_in_system(_joined(CHUNKS[:4], form)),
        after,
        "chunk_order",
        body.system()[2],
    )


@breaks
def chunks_on_one_line_shuffled(body: Body) -> Pair:
    lines = [chunk.replace("\n", " ") + "." for chunk in CHUNKS]
    after = body.copy().put_in_system(" ".join(lines[3:] + lines[:3])).talk(1)
    return pair(
        "chunks, one line", body.copy().put_in_system(" ".join(lines)), after, "chunk_order", body.system()[2]
    )


@breaks
def chunks_shuffled_in_a_message(body: Body) -> Pair:
    before = body.copy().say("user", f"Context:\n{_joined(CHUNKS)}\n\nWhat is the handler?")
    after = body.copy().say("user", f"Context:\n{_joined(CHUNKS[::-1])}\n\nWhat is the handler?").talk(1)
    return pair("chunks in a message", before, after, "chunk_order", body.part(len(before.items) - 1))


@breaks
def results_of_parallel_calls_in_another_order(body: Body) -> Pair:
    before = body.copy().say("user", tool_output(1)).say("user", tool_output(2)).say("user", tool_output(3))
    after = (
        body.copy()
        .say("user", tool_output(3))
        .say("user", tool_output(1))
        .say("user", tool_output(2))
        .talk(1)
    )
    return pair("results", before, after, "chunk_order", body.part(len(body.items)))


@breaks
def tools_shuffled(body: Body) -> Pair:
    after = body.copy().talk(1)
    after.tools[1:] = after.tools[:0:-1]
    return pair("tools reversed but the first", body, after, "tool_order", "tools[1]")


@breaks
def two_tools_swapped(body: Body) -> Pair:
    after = body.copy().ask("What is new here?")
    after.tools[2], after.tools[3] = after.tools[3], after.tools[2]
    return pair("tools swapped", body, after, "tool_order", "tools[2]", other_session=True)


@breaks
def a_tool_removed(body: Body) -> Pair:
    after = body.copy().talk(1)
    del after.tools[2]
    return pair("tool removed", body, after, "tools_changed", "tools[2]")


@breaks
def a_tool_added(body: Body) -> Pair:
    after = body.copy().talk(1)
    after.tools.insert(1, renamed(after.tools[0], "mcp__wiki__search"))
    return pair("tool added", body, after, "tools_changed", "tools[1]")


@breaks
def the_last_tool_removed(body: Body) -> Pair:
    after = body.copy().talk(1)
    index = len(after.tools) - 1
    del after.tools[index]
    return pair("last tool removed", body, after, "tools_changed", f"tools[{index}]")


@breaks
def a_tool_added_in_another_session(body: Body) -> Pair:
    after = body.copy().ask("What is new here?")
    after.tools.insert(1, renamed(after.tools[0], "mcp__wiki__search"))
    return pair("tool added", body, after, "tools_changed", "tools[1]", other_session=True)


def renamed(tool: Json, name: str) -> Json:
    new = copy.deepcopy(tool)
    function_of(new)["name"] = name
    return new


def function_of(tool: Json) -> Json:
    return tool.get("function", tool)


def with_schema(body: Body) -> tuple[int, str]:
    """A tool with at least two parameters, and what the API calls them."""
    for index, tool in enumerate(body.tools):
        for field in ("parameters", "input_schema"):
            schema = function_of(tool).get(field)
            if isinstance(schema, dict) and len(schema.get("properties", ())) > 1:
                return index, field
    raise LookupError("no tool with parameters")


@breaks
def keys_of_a_schema_in_another_order(body: Body) -> Pair:
    index, field = with_schema(body)
    after = body.copy().talk(1)
    function = function_of(after.tools[index])
    function[field] = dict(reversed(function[field].items()))
    return pair("schema keys", body, after, "key_order", f"tools[{index}].{field}")


@breaks
def properties_in_another_order(body: Body) -> Pair:
    index, field = with_schema(body)
    after = body.copy().ask("What is new here?")
    schema = function_of(after.tools[index])[field]
    schema["properties"] = dict(reversed(schema["properties"].items()))
    return pair("properties", body, after, "key_order", f"tools[{index}].{field}", other_session=True)


@breaks
def keys_of_json_in_the_system_text(body: Body) -> Pair:
    one = '{"os": "linux", "shell": "bash", "editor": "vim", "locale": "en"}'
    other = '{"shell": "bash", "os": "linux", "locale": "en", "editor": "vim"}'
    after = body.copy().put_in_system(other).talk(1)
    return pair(
        "json in the system text", body.copy().put_in_system(one), after, "key_order", body.system()[2]
    )


@breaks
def keys_of_printed_json_in_the_system_text(body: Body) -> Pair:
    one = '```json\n{\n  "os": "linux",\n  "shell": "bash",\n  "editor": "vim"\n}\n```'
    other = '```json\n{\n  "shell": "bash",\n  "editor": "vim",\n  "os": "linux"\n}\n```'
    after = body.copy().put_in_system(other).talk(1)
    return pair("printed json", body.copy().put_in_system(one), after, "key_order", body.system()[2])


@breaks
def a_date_in_a_tool(body: Body) -> Pair:
    before, after = body.copy(), body.copy().ask("What is new here?")
    for it, day in ((before, "2026-12-01"), (after, "2026-12-02")):
        function = function_of(it.tools[3])
        function["description"] = (
            f"{function.get('description', '')}\nToday is {day}, so search for that year."
        )
    return pair("date in a tool", before, after, "timestamp", "tools[3].description", other_session=True)


@breaks
def an_id_in_a_tool(body: Body) -> Pair:
    before, after = body.copy(), body.copy().talk(1)
    for it, value in ((before, "sandbox-7f3e9a2b41"), (after, "sandbox-0c9d8e7f66")):
        function = function_of(it.tools[1])
        function["description"] = f"Runs in {value}. {function.get('description', '')}"
    return pair("id in a tool", before, after, "random_id", "tools[1].description")


@breaks
def lists_in_a_tool(body: Body) -> Pair:
    before, after = body.copy(), body.copy().talk(1)
    for it, names in ((before, "explorer, tester, writer"), (after, "explorer, reviewer, tester, writer")):
        function = function_of(it.tools[0])
        function["description"] = f"{function.get('description', '')}\nAvailable agents: {names}"
    return pair("list in a tool", before, after, "other", "tools[0].description")


@breaks
def white_space_at_line_ends(body: Body) -> Pair:
    read, _, part = body.system()
    after = body.copy().talk(1)
    after.system()[1](read().replace("\n", "  \n", 5).replace(". ", ".  ", 2) + " ")
    return pair("trailing spaces", body, after, "whitespace", part)


@breaks
def other_line_ends(body: Body) -> Pair:
    before = body.copy().put_in_system("One line\nAnother line\nAnd a third")
    after = before.copy().ask("What is new here?")
    after.system()[1](before.system()[0]().replace("\n", "\r\n"))
    return pair("CRLF", before, after, "whitespace", body.system()[2], other_session=True)


@breaks
def other_indents(body: Body) -> Pair:
    after = body.copy().put_in_system("rules:\n    - one\n    - two").talk(1)
    before = body.copy().put_in_system("rules:\n  - one\n  - two")
    return pair("indents", before, after, "whitespace", body.system()[2])


@breaks
def white_space_in_a_message(body: Body) -> Pair:
    before = body.copy().talk(2)
    after = before.copy().talk(1, 2)
    index = len(body.items) + 1
    set_text(after.items[index], text_of(after.items[index]).strip().replace("\n", "\n\n", 3))
    return pair("spaces in a message", before, after, "whitespace", body.part(index))
