"""A breaker in words: what happens, and what to do about it."""

from gateway.core.breakers import Row

_WHAT = {
    "timestamp": "changes with a date or time",
    "random_id": "changes with a random id",
    "counter": "changes with a number",
    "tool_order": "has tools in another order",
    "chunk_order": "has the same texts in another order",
    "key_order": "has JSON keys in another order",
    "whitespace": "changes in white space only",
    "moved_reminder": "loses or gets a reminder that stood elsewhere before",
    "edited_history": "is an earlier message that was changed or left out",
    "compaction": "begins a summary in place of the history",
    "tools_changed": "has tools added or removed",
    "other": "changes in part of its text",
}

_LATER = "Move it to the end of the last message"
_TO_DO = {
    "timestamp": f"{_LATER}, or give the day instead of the time",
    "random_id": f"Leave it out, or {_LATER.lower()}",
    "counter": f"{_LATER}",
    "tool_order": "Sort the tools where the request is made",
    "chunk_order": "Keep the texts in one order, by id for example, or put them into the last message",
    "key_order": "Write JSON with sorted keys",
    "whitespace": "Write the text in the same way each time",
    "moved_reminder": "Append reminders and leave them where they are, or send them in the last message only "
    "once the engine has the rest",
    "edited_history": "Leave earlier messages as they were sent; clear many at once and seldom, not a few in "
    "each turn",
    "compaction": "This costs one prefill each time: compact later, or leave the first messages as they are",
    "tools_changed": "Give all tools from the start, or add new ones at the end",
    "other": f"{_LATER}, or put it behind what all sessions share",
}
_RULES = {
    "tool_order": "{rule: sort_tools}",
    "key_order": "{rule: sort_tool_keys}",
}


def sentence(row: Row, per_hour: int) -> str:
    """What it is, how often, and what it costs."""
    times = "one request" if row.count == 1 else f"{row.count:,} requests"
    where = "from session to session" if row.scope == "family" else "within a session"
    cost = f"{per_hour:,} tokens were computed again in the last hour"
    return f"{row.part} {_WHAT[row.kind]}, {where}, in {times} of {row.client}: {cost}."


def fix(row: Row) -> str:
    """What the client's author can do, and what the gateway can."""
    rule = _rule(row)
    return f"{_TO_DO[row.kind]}{f', or `normalize: [{rule}]`' if rule else ''}."


def _rule(row: Row) -> str:
    """The rule of `normalize` that takes it out on the way; empty where there is none."""
    if row.kind == "random_id" and row.part == "system[0]" and row.client == "Claude Code":
        return "{rule: strip_billing_header}"
    is_tool = row.part.startswith("tools")
    if row.kind == "tool_order" or (row.kind == "key_order" and is_tool):
        return _RULES[row.kind]
    if row.kind in ("timestamp", "random_id", "counter"):
        place = "tools" if is_tool else "system" if _is_system(row.part) else "messages"
        return f"{{rule: replace, in: {place}, pattern: ..., with: ...}}"
    return ""


def _is_system(part: str) -> bool:
    return part.startswith(("system", "instructions"))
