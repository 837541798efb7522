import json
from typing import Any

import pytest
from bodies import Body, ask

from gateway.core.facts import Billing
from gateway.wire.billing import as_rendered, has_billing
from gateway.wire.openai import read

LINE = "x-anthropic-billing-header: cc_version=2.1.100.7b4; cc_entrypoint=cli; cch={};"
USER = {"role": "user", "content": "hi\nthere"}


def messages(system: Any) -> bytes:
    return ask("messages", system=system, messages=[USER]).canonical


def chat(content: Any, *more: Body, **body: Any) -> bytes:
    return ask("chat", messages=[{"role": "system", "content": content}, *more, USER], **body).canonical


def text(it: str) -> Body:
    return {"type": "text", "text": it}


def two(it: str) -> list[Body]:
    return [text(it), text("You are")]


FORMS = {
    "messages, blocks": lambda line: messages(two(line)),
    "messages, a string": lambda line: messages(f"{line}\nYou are"),
    "messages, nothing else": lambda line: messages([text(line)]),
    "chat, a string": lambda line: chat(f"{line}\nYou are"),
    "chat, parts": lambda line: chat(two(line)),
    "chat, a message of its own": lambda line: chat(line, {"role": "system", "content": "You are"}),
    "chat, with a template": lambda line: chat(f"{line}\nYou are", reasoning_effort="high"),
    "chat, tools first": lambda line: (
        read(
            "chat",
            json.dumps(
                {"messages": [{"role": "system", "content": f"{line}\nYou are"}], "tools": ["x" * 3000]}
            ).encode(),
            lambda _: True,
        ).canonical
    ),
    "responses": lambda line: ask("responses", instructions=f"{line}\nYou are", input="hi").canonical,
}


@pytest.mark.parametrize("form", FORMS)
def test_two_values_of_cch_are_one_prompt_only_where_they_are_not_shown(form: str) -> None:
    first, second = (FORMS[form](LINE.format(cch)) for cch in ("eb6c6", "0aaa9"))
    assert has_billing(first)
    assert first != second
    assert as_rendered(first, Billing.KEPT) == first
    for billing in (Billing.MASKED, Billing.DROPPED):
        assert as_rendered(first, billing) == as_rendered(second, billing) != first
    other = FORMS[form](LINE.format("eb6c6").replace("2.1.100", "2.1.200"))
    assert as_rendered(first, Billing.MASKED) != as_rendered(other, Billing.MASKED)
    assert as_rendered(first, Billing.DROPPED) == as_rendered(other, Billing.DROPPED)


def test_blocks_and_a_string_are_one_prompt_in_each_api() -> None:
    line = LINE.format("eb6c6")
    assert messages(two(line)) == messages(f"{line}\nYou are") == chat(f"{line}\nYou are") == chat(two(line))


def test_without_the_line_the_prompt_is_as_if_it_had_never_been_there() -> None:
    for given in (messages(two(LINE)), chat(two(LINE))):
        assert as_rendered(given, Billing.DROPPED) == chat("You are")


def test_a_line_further_down_is_text() -> None:
    line = LINE.format("eb6c6")
    assert not has_billing(chat(f"You are\n{line}"))
    assert not has_billing(ask("chat", messages=[{"role": "user", "content": line}]).canonical)
    assert not has_billing(chat("x" * 2000, {"role": "system", "content": line}))


def test_a_cch_of_another_form_is_not_masked() -> None:
    # llama.cpp replaces five characters before a semicolon (ggml-org/llama.cpp#21793).
    given = messages(LINE.format("eb6c6a") + "\nYou are")
    assert as_rendered(given, Billing.MASKED) == given
