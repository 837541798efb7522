"""Changes of what was said before."""

import json

from breaker_bodies import NAMES, Body, Json, set_text, text_of, tool_output
from breaker_pairs import Pair, breaks, pair

REMINDER = "<system-reminder>\nThe todo list is empty. Do not mention this to the user.\n</system-reminder>"


@breaks
def a_reminder_that_moves_to_the_last_message(body: Body) -> Pair:
    before = body.copy().talk(1)
    after = before.copy().talk(1, 1)
    index = len(before.items) - 1
    for it in (before.items[index], after.items[-1]):
        set_text(it, f"{text_of(it)}\n{REMINDER}")
    return pair("reminder moves", before, after, "moved_reminder", body.part(index))


@breaks
def a_reminder_that_is_taken_out(body: Body) -> Pair:
    before = body.copy().talk(2)
    after = before.copy().talk(1, 2)
    index = len(body.items) + 1
    set_text(before.items[index], f"{REMINDER}\n{text_of(before.items[index])}")
    return pair("reminder taken out", before, after, "moved_reminder", body.part(index))


@breaks
def lines_that_move_to_the_last_message(body: Body) -> Pair:
    note = "Remember: answer in short sentences.\nOpen files: none of them changed."
    before = body.copy().talk(1)
    after = before.copy().talk(1, 1)
    index = len(before.items) - 1
    for it in (before.items[index], after.items[-1]):
        set_text(it, f"{text_of(it)}\n{note}")
    return pair("untagged note moves", before, after, "moved_reminder", body.part(index))


@breaks
def environment_details_with_a_time(body: Body) -> Pair:
    before = body.copy().talk(1)
    after = before.copy().talk(1, 1)
    index = len(before.items) - 1
    for it, time in ((before.items[index], "10:15:01"), (after.items[-1], "10:15:44")):
        details = f"<environment_details>\n# Current Time\n12/1/2026, {time} AM\n</environment_details>"
        set_text(it, f"{text_of(it)}\n{details}")
    return pair("environment details", before, after, "moved_reminder", body.part(index))


@breaks
def a_message_of_its_own_that_moves(body: Body) -> Pair:
    note = "Plan mode is on. Only read files, and say what you would change before you do it."
    before = body.copy().say("user", note).talk(2)
    after = body.copy().talk(2).say("user", note)
    after.say("assistant", "So I will.").say("user", "Go on.")
    return pair("message moves", before, after, "moved_reminder", body.part(len(body.items)))


@breaks
def a_system_message_that_is_hoisted(body: Body) -> Pair:
    note = "The user has switched to plan mode.\nOnly read files now.\nSay what you would change."
    before = body.copy().talk(1).say("system", note).talk(1, 1)
    after = body.copy().talk(2).talk(1, 2)
    read, write, part = after.system()
    write(f"{read()}\n{note}")
    return pair("system message hoisted", before, after, "moved_reminder", part)


@breaks
def a_time_in_an_old_message(body: Body) -> Pair:
    before = body.copy().talk(2)
    after = before.copy().talk(1, 2)
    index = len(body.items) + 1
    for it, time in ((before, "2026-12-01 10:15"), (after, "2026-12-01 10:16")):
        set_text(it.items[index], f"[{time}] {text_of(it.items[index])}")
    return pair("time in a message", before, after, "timestamp", body.part(index))


@breaks
def a_time_in_the_last_message(body: Body) -> Pair:
    before, after = body.copy().talk(1), body.copy().talk(2)
    index = len(before.items) - 1
    for it, time in ((before, "10:15:02"), (after, "10:15:59")):
        set_text(it.items[index], f"{text_of(it.items[index])}\nCurrent time: {time}")
    return pair("time in the last message", before, after, "timestamp", body.part(index))


@breaks
def an_edited_answer(body: Body) -> Pair:
    before = body.copy().talk(3)
    after = before.copy().talk(1, 3)
    index = len(body.items) + 2
    set_text(after.items[index], "Never mind what I have said here before.")
    return pair("edited answer", before, after, "edited_history", body.part(index))


@breaks
def a_cleared_tool_result(body: Body) -> Pair:
    before = body.copy().talk(4)
    after = before.copy().talk(1, 4)
    index = len(body.items) + 1
    set_text(after.items[index], "[Old tool result content cleared]")
    set_text(after.items[index + 2], "[Old tool result content cleared]")
    return pair("cleared results", before, after, "edited_history", body.part(index))


@breaks
def a_message_left_out(body: Body) -> Pair:
    before = body.copy().talk(4)
    after = before.copy().talk(1, 4)
    index = len(body.items) + 2
    del after.items[index]
    return pair("message left out", before, after, "edited_history", body.part(index))


@breaks
def a_window_that_slides(body: Body) -> Pair:
    before = body.copy().talk(8)
    after = before.copy().talk(1, 8)
    index = len(body.items)
    del after.items[index : index + 6]
    return pair("sliding window", before, after, "edited_history", body.part(index))


@breaks
def a_truncated_tool_result(body: Body) -> Pair:
    before = body.copy().talk(3)
    after = before.copy().talk(1, 3)
    index = len(body.items) + 1
    set_text(after.items[index], text_of(after.items[index])[:300] + "\n[truncated]")
    return pair("truncated result", before, after, "edited_history", body.part(index))


SUMMARY = "This session is being continued from a previous conversation. Summary:\n" + "\n".join(
    f"- {name} was looked at and is as it should be" for name in NAMES
)


@breaks
def a_history_replaced_by_a_summary(body: Body) -> Pair:
    before = body.copy().talk(9)
    return pair("compaction", before, body.copy().ask(SUMMARY), "compaction", body.part(_first_user(body)))


@breaks
def a_history_replaced_but_for_its_end(body: Body) -> Pair:
    before = body.copy().talk(9)
    after = before.copy().talk(1, 9)
    index = len(body.items)
    after.items[index : index + 12] = body.copy().say("user", "Until here: all modules read.").items[-1:]
    return pair("compaction, end kept", before, after, "compaction", body.part(index))


@breaks
def a_history_replaced_by_a_summary_without_its_words(body: Body) -> Pair:
    after = body.copy().ask("Here is what happened so far: the modules were read, and two of them changed.")
    after.say("assistant", "sure").say("user", "go on")
    return pair(
        "compaction in other words", body.copy().talk(9), after, "compaction", body.part(_first_user(body))
    )


@breaks
def examples_as_messages_swapped(body: Body) -> Pair:
    def asked(*names: str) -> Body:
        made = body.copy().say("user", "Answer in one word.").say("assistant", "I will.")
        for name in names:
            made.say("user", f"Which module is slow when {name} is?").say("assistant", f"That of {name}.")
        return made

    before = asked("parsing", "billing", "logging").say("user", "And when routing is?")
    after = asked("billing", "logging", "parsing").say("user", "And when the cache is?")
    return pair("examples as messages", before, after, "chunk_order", body.part(len(body.items) + 2))


@breaks
def keys_of_a_call_s_arguments_in_another_order(body: Body) -> Pair:
    before = call(body.copy(), {"path": "parser.py", "limit": 20, "range": {"from": 1, "to": 90}})
    after = call(body.copy(), {"limit": 20, "range": {"to": 90, "from": 1}, "path": "parser.py"})
    index = len(body.items) + (body.api == "responses")
    part = {"chat": ".tool_calls[0]", "messages": ".content[0]", "responses": ""}[body.api]
    return pair("keys of arguments", before, after.talk(1), "key_order", body.part(index) + part)


def call(body: Body, arguments: dict[str, Json]) -> Body:
    """A call and its result, in the form of the API."""
    text, result = json.dumps(arguments), tool_output(3)
    if body.api == "chat":
        function = {"name": "read_file", "arguments": text}
        made = {"role": "assistant", "content": None, "tool_calls": [{"id": "c1", "function": function}]}
        body.items.extend([made, {"role": "tool", "tool_call_id": "c1", "content": result}])
    elif body.api == "messages":
        used = {"type": "tool_use", "id": "c1", "name": "read_file", "input": arguments}
        given = {"type": "tool_result", "tool_use_id": "c1", "content": result}
        body.items.extend([{"role": "assistant", "content": [used]}, {"role": "user", "content": [given]}])
    else:
        body.say("assistant", "I read it.")
        made = {"type": "function_call", "call_id": "c1", "name": "read_file", "arguments": text}
        body.items.extend([made, {"type": "function_call_output", "call_id": "c1", "output": result}])
    return body


NEEDS_SESSION = {a_history_replaced_by_a_summary, a_history_replaced_by_a_summary_without_its_words}
"""Nothing of the earlier prompt is left but what all of the client's prompts share."""


def _first_user(body: Body) -> int:
    return next(at for at, it in enumerate(body.items) if it.get("role") == "user")
