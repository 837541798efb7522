"""What clients do that breaks no prefix."""

from breaker_bodies import Body
from breaker_pairs import Pair, harmless, pair
from breaker_texts import function_of, renamed, with_schema


@harmless
def a_conversation_that_grows(body: Body) -> Pair:
    return pair("grows", body, body.copy().talk(1))


@harmless
def a_conversation_that_grows_by_much(body: Body) -> Pair:
    return pair("grows by much", body.copy().talk(2), body.copy().talk(30))


@harmless
def the_same_prompt_again(body: Body) -> Pair:
    return pair("again", body.copy().talk(2), body.copy().talk(2))


@harmless
def an_answer_generated_again(body: Body) -> Pair:
    return pair("shorter", body.copy().talk(5), body.copy().talk(3))


@harmless
def a_last_question_that_is_edited(body: Body) -> Pair:
    before = body.copy().talk(2).say("user", "Now fix the parser for issue 12.")
    return pair("last question edited", before, body.copy().talk(2).say("user", "Now fix it for issue 13."))


@harmless
def a_fork(body: Body) -> Pair:
    after = body.copy().talk(2).say("assistant", "All done.").say("user", "Then write the release notes.")
    return pair("fork", body.copy().talk(6), after)


@harmless
def a_fork_in_another_session(body: Body) -> Pair:
    after = body.copy().talk(2).say("assistant", "All done.").say("user", "Then write the release notes.")
    return pair("fork, other session", body.copy().talk(6), after, other_session=True)


@harmless
def another_user_with_the_same_system_text(body: Body) -> Pair:
    return pair(
        "other user", body.copy().talk(3), body.copy().ask("Why is the sky blue?"), other_session=True
    )


@harmless
def another_user_whose_question_differs_by_a_number(body: Body) -> Pair:
    before = body.copy().ask("Fix issue 12.")
    return pair("other number", before, body.copy().ask("Fix issue 13."), other_session=True)


@harmless
def another_question_in_the_same_session(body: Body) -> Pair:
    return pair("other question", body.copy().talk(3), body.copy().ask("Why is the sky blue?"))


@harmless
def a_request_for_a_title(body: Body) -> Pair:
    after = body.copy()
    after.system()[1]("Write a title of at most five words for the conversation below.\nNo quotes.\n" * 8)
    after.data["tools"] = []
    return pair("title", body, after)


@harmless
def a_sub_agent(body: Body) -> Pair:
    after = body.copy().ask("Search the code for callers of the parser, and list them.")
    after.system()[1]("You search code.\nYou answer with paths only.\nYou change nothing.\n" * 30)
    after.data["tools"] = after.tools[:3]
    return pair("sub-agent", body.copy().talk(2), after)


@harmless
def a_sub_agent_with_all_tools(body: Body) -> Pair:
    after = body.copy().ask("Search the code for callers of the parser, and list them.")
    after.system()[1]("You search code.\nYou answer with paths only.\nYou change nothing.\n" * 30)
    return pair("sub-agent, all tools", body.copy().talk(2), after)


@harmless
def two_clients_that_share_a_tool(body: Body) -> Pair:
    after = body.copy().ask("Book a table for two.")
    after.system()[1]("You book tables in restaurants.\nYou are polite.\nYou ask for the day.\n" * 40)
    shared = after.tools[0]
    after.data["tools"] = [shared, *(renamed(shared, f"book_{n}") for n in range(6))]
    return pair("shared tool", body, after, other_session=True)


@harmless
def other_sampling_and_metadata(body: Body) -> Pair:
    after = body.copy().talk(1)
    after.data |= {"temperature": 0.2, "max_tokens": 77, "metadata": {"user_id": "u-9"}, "seed": 4}
    return pair("sampling", body, after)


@harmless
def ids_that_never_reach_the_prompt(body: Body) -> Pair:
    before, after = body.copy().talk(2), body.copy().talk(3)
    for at, it in enumerate(after.items):
        it["id"] = f"msg_{at}_9f8e7d6c5b"
    return pair("ids", before, after)


@harmless
def the_same_text_in_parts(body: Body) -> Pair:
    after = body.copy().talk(1)
    kind = "input_text" if body.api == "responses" else "text"
    for it in after.items:
        if isinstance(it.get("content"), str):
            it["content"] = [{"type": kind, "text": it["content"], "cache_control": {"type": "ephemeral"}}]
    return pair("parts", body, after)


@harmless
def cache_marks_that_move(body: Body) -> Pair:
    after = body.copy().talk(1)
    after.tools[-1]["cache_control"] = {"type": "ephemeral"}
    return pair("cache marks", body, after)


@harmless
def a_date_in_the_newest_message(body: Body) -> Pair:
    before = body.copy().say("user", "It is 2026-12-01 10:15. Go on.")
    after = before.copy().say("assistant", "Yes.").say("user", "It is 2026-12-01 10:19. Go on.")
    return pair("date in the newest message", before, after)


@harmless
def dates_in_the_questions_of_two_users(body: Body) -> Pair:
    before = body.copy().ask("What happened on 2026-12-01?")
    return pair(
        "dates asked for", before, body.copy().ask("What happened on 2026-12-02?"), other_session=True
    )


@harmless
def keys_of_a_tool_in_another_order(body: Body) -> Pair:
    index, _ = with_schema(body)
    after = body.copy().talk(1)
    function = function_of(after.tools[index])
    turned = dict(reversed(function.items()))
    function.clear()
    function.update(turned)
    return pair("tool keys", body, after)
