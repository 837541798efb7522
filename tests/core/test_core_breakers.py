import itertools
import random

import pytest
from breaker_values import OTHER_RULES, RULES, an_arrival, said, system, tool
from msgspec.structs import replace

from gateway.core.breakers import MAX_ROWS, Breakers
from gateway.core.shapes import Segment, outline

LONG = "a long message, " * 40


def stamped(time, *rest):
    return system(f"{RULES}\nNow: {time}\n{RULES}"), said(*rest)


def kinds(breakers):
    return {kind: count for kind, count in breakers.kinds.items() if count}


def test_each_request_that_breaks_its_session_s_prefix_is_counted():
    breakers = Breakers()
    assert breakers.see(an_arrival(*stamped("10:15", "hi"), session=5)) is None
    broken = breakers.see(an_arrival(*stamped("10:16", "hi", "ho", "go"), session=5, now=60.0))
    assert (broken.kind, broken.part) == ("timestamp", "system[0]")
    breakers.see(an_arrival(*stamped("10:17", "hi", "ho", "go", "so", "on"), session=5, now=120.0))
    assert kinds(breakers) == {"timestamp": 2}
    (row,) = breakers.rows(120.0)
    assert (row.scope, row.client, row.count) == ("session", "a client", 2)
    assert (row.first_at, row.last_at) == (60.0, 120.0)
    assert row.tokens == row.tokens_per_hour(120.0) > 2 * broken.lost_bytes // 5
    assert breakers.checked == 3
    assert len(breakers.kinds) == 12


def test_tokens_of_the_last_hour_fade():
    breakers = Breakers()
    for minute in (0, 10, 20, 70):
        breakers.see(an_arrival(*stamped(f"10:{minute:02d}", "hi"), session=5, now=minute * 60.0))
    (row,) = breakers.rows(4200.0)
    assert row.count == 3
    assert row.tokens_per_hour(4200.0) < row.tokens
    assert row.tokens_per_hour(9000.0) == 0
    assert len(row.buckets) == 2


def test_sessions_of_a_client_break_what_they_share():
    breakers = Breakers()
    breakers.see(an_arrival(*stamped("10:15", "hi"), session=5))
    broken = breakers.see(an_arrival(*stamped("10:16", "what else?"), session=6))
    assert broken.kind == "timestamp"
    assert breakers.rows(0.0)[0].scope == "family"
    assert breakers.see(an_arrival(*stamped("10:15", "and that?"), session=7)) is None


def test_a_prompt_that_goes_on_is_read_from_its_end():
    breakers, read = Breakers(), []
    shared = system(RULES)

    def seen(*texts):
        arrival, segments = an_arrival(shared, said(*texts), session=5), said(*texts)

        def body(first):
            read.append(first)
            return [it for it in segments if it.item >= first]

        return breakers.see(replace(arrival, body=body))

    texts = [f"{n}: {LONG}" for n in range(6)]
    assert seen(*texts[:2]) is None
    assert seen(*texts[:4]) is None
    assert seen(*texts) is None
    assert read == [0, 1, 3]
    assert seen(*texts[:3], "another", *texts[4:], "and on").kind == "edited_history"


def test_a_prompt_that_repeats_is_not_read_at_all():
    breakers = Breakers()
    arrival = an_arrival(system(RULES), said(LONG))
    assert not breakers.repeats(0, arrival.blocks, arrival.prompt_bytes)
    breakers.see(arrival)
    assert breakers.repeats(0, arrival.blocks, arrival.prompt_bytes)
    assert not breakers.repeats(0, arrival.blocks, arrival.prompt_bytes + 1)
    assert not breakers.repeats(9, arrival.blocks, arrival.prompt_bytes)
    assert breakers.checked == 2


def test_what_is_behind_the_last_block_is_compared_too():
    breakers = Breakers()
    breakers.see(an_arrival(system(RULES), said(LONG, LONG, "done", "ok"), session=5))
    broken = breakers.see(an_arrival(system(RULES), said(LONG, LONG, "DONE", "ok", "so"), session=5))
    assert broken.kind == "edited_history"
    assert broken.lost_bytes < 64
    assert (
        breakers.see(an_arrival(system(RULES), said(LONG, LONG, "DONE", "ok", "so", "on"), session=5)) is None
    )


def test_what_is_shared_is_read_once_for_each_prompt_that_is_new():
    breakers, tools = Breakers(), [*tool(0, "read", RULES), *tool(1, "write", OTHER_RULES)]
    shared, read = [*system(RULES), *tools], []

    def seen(question, session):
        arrival = an_arrival(shared, said(question), session=session)

        def again():
            read.append(question)
            return shared

        return breakers.see(replace(arrival, shared=again))

    for at, word in enumerate(("one", "two", "three", "four")):
        assert seen(f"{word} {LONG}", at + 1) is None
    assert read == [f"{word} {LONG}" for word in ("one", "two", "three", "four")]


def test_a_prompt_without_messages_is_one():
    breakers = Breakers()
    assert breakers.see(an_arrival(system(RULES), [])) is None
    assert breakers.see(an_arrival(system(RULES), [])) is None
    assert breakers.see(an_arrival([], [])) is None
    assert breakers.checked == 3


def test_of_a_long_prompt_that_comes_first_the_newest_messages_are_looked_at():
    breakers = Breakers()
    texts = [f"{n} {'word ' * 4000}" for n in range(12)]
    breakers.see(an_arrival(system(RULES), said(*texts), session=5))
    digests = outline(said(*texts)).digests
    known = [breakers.shapes.get(it) is not None for it in digests]
    assert known[0]
    assert known[-1]
    assert not all(known)


def test_the_nearest_of_a_session_s_conversations_is_the_previous_one():
    breakers = Breakers()
    breakers.see(an_arrival(system(RULES), said(LONG, "one", "short " * 20), session=5))
    breakers.see(an_arrival(system(RULES), said(LONG, "two", LONG * 2), session=5))
    found = breakers.see(
        an_arrival(system(RULES), said(LONG, "new", LONG * 2, "so", "short " * 20), session=5)
    )
    assert (found.kind, found.part) == ("edited_history", "messages[1]")
    assert found.lost_bytes > len(LONG)


def test_rows_are_bounded_and_the_worst_is_first():
    breakers = Breakers()
    for at in range(MAX_ROWS + 3):
        breakers.see(an_arrival(*stamped("10:15", "hi"), session=at + 1, client=f"c{at}"))
        breakers.see(an_arrival(*stamped("10:16", "hi"), session=at + 1, client=f"c{at}"))
    rows = breakers.rows(0.0)
    assert len(rows) == MAX_ROWS
    assert rows[0].tokens >= rows[-1].tokens


def test_text_is_kept_only_while_it_may_be():
    breakers = Breakers(keep_text=True)
    breakers.see(an_arrival(*stamped("10:15", "hi"), session=5))
    breakers.see(an_arrival(*stamped("10:16", "hi"), session=5))
    assert "10:15" in breakers.rows(0.0)[0].text[0]
    breakers.keep_text(True)
    assert len(breakers.shapes) > 0
    breakers.keep_text(False)
    assert breakers.rows(0.0)[0].text is None
    assert len(breakers.shapes) == 0
    breakers.keep_text(False)
    breakers.see(an_arrival(*stamped("10:17", "hi"), session=5))
    breakers.see(an_arrival(*stamped("10:18", "hi"), session=5))
    assert breakers.rows(0.0)[0].text is None


TASK = "Solve the task in /work"
RESULT = "a.py and b.py, and nothing else in here"
GO_ON = "Go on until it is done, with no more questions."


def a_run(seed, steps=6):
    """The prompts of an agent's run: its calls and their results differ from run to run."""
    rng, messages, prompts = random.Random(seed), [("user", TASK)], []
    for _ in range(steps):
        prompts.append(list(messages))
        messages += [("assistant", ""), ("assistant", f'{{"command":"ls -{rng.randint(1, 3)}"}}')]
        messages.append(("tool", f"finished in {rng.randint(1, 9)} s\n{RESULT}"))
        if rng.random() < 0.5:
            prompts.append(list(messages))
            messages.append(("user", GO_ON))
    return prompts


def turns(messages):
    return [Segment("m", f"messages[{at}]", text, role, at) for at, (role, text) in enumerate(messages)]


@pytest.mark.parametrize("session", [0, 5])
def test_another_answer_to_a_prompt_that_is_known_begins_a_run_of_its_own(session):
    breakers = Breakers()
    asked = [("user", TASK)]
    runs = [
        [*asked, ("assistant", ""), ("assistant", call), ("tool", RESULT)] for call in ("ls", "ls -la", "dir")
    ]
    for it in (asked, asked, *runs, asked, runs[0], [*runs[1], ("assistant", "Two."), ("user", "Go on.")]):
        assert breakers.see(an_arrival(system(RULES), turns(it), session=session)) is None


@pytest.mark.parametrize("count", [4, 12])
def test_runs_of_one_task_side_by_side_break_nothing(count):
    for seed in range(3):
        breakers = Breakers()
        runs = [a_run(100 * seed + at) for at in range(count)]
        for step in itertools.zip_longest(*runs):
            for messages in filter(None, step):
                assert breakers.see(an_arrival(system(RULES), turns(messages))) is None


def test_runs_of_one_task_after_each_other_break_nothing():
    breakers = Breakers()
    for result in ("built in 12 s", "built in 14 s", "built in 13 s"):
        messages = [("user", TASK), ("assistant", "make"), ("tool", result), ("assistant", RESULT)]
        assert breakers.see(an_arrival(system(RULES), turns(messages[:1]))) is None
        assert breakers.see(an_arrival(system(RULES), turns(messages[:3]))) is None
        assert breakers.see(an_arrival(system(RULES), turns([*messages, ("user", GO_ON)]))) is None


def test_two_chats_that_both_go_on_with_a_word_break_nothing():
    breakers = Breakers()
    for answers in (("What shall I go on with?", "Yes to what?"), ("I cannot tell.", "I do not know.")):
        messages = said("continue", answers[0], f"yes, {LONG}", answers[1], "ok")
        for count in (1, 3, 5):
            assert breakers.see(an_arrival(system(RULES), messages[:count])) is None


@pytest.mark.parametrize("session", [0, 5])
def test_an_old_answer_that_is_edited_is_no_run_of_its_own(session):
    breakers = Breakers()
    texts = [f"{at}: {LONG}" for at in range(7)]
    for count in (1, 3, 5):
        assert breakers.see(an_arrival(system(RULES), said(*texts[:count]), session=session)) is None
    edited = [texts[0], "never mind", *texts[2:]]
    broken = breakers.see(an_arrival(system(RULES), said(*edited), session=session))
    assert (broken.kind, broken.part) == ("edited_history", "messages[1]")


def test_where_no_session_is_named_an_answer_may_be_that_of_one_of_several_runs():
    breakers = Breakers()
    texts = [f"{at}: {LONG}" for at in range(7)]
    for count in (1, 3, 5):
        breakers.see(an_arrival(system(RULES), said(*texts[:count])))
    breakers.see(an_arrival(system(RULES), said(texts[0], "quite another")))
    assert breakers.see(an_arrival(system(RULES), said(texts[0], "never mind", *texts[2:]))) is None


def test_a_shorter_prompt_does_not_end_the_longer_one_s_conversation():
    breakers = Breakers()
    texts = [f"{at}: {LONG}" for at in range(8)]
    for count in (1, 5, 3, 6):
        assert breakers.see(an_arrival(system(RULES), said(*texts[:count]), session=5)) is None
    assert len(breakers.conversations) == 2


@pytest.mark.parametrize("session", [0, 5])
def test_examples_in_another_order_before_another_question(session):
    breakers = Breakers()
    one, other = ("capital of France, in one word?", "Paris"), ("capital of Peru, in one word?", "Lima")
    breakers.see(an_arrival(system(RULES), said(*one, *other, "of Chad?"), session=session))
    assert breakers.see(an_arrival(system(RULES), said(*one, *other, "of Niger?"), session=session)) is None
    broken = breakers.see(an_arrival(system(RULES), said(*other, *one, "of Mali?"), session=session))
    assert (broken.kind, broken.part) == ("chunk_order", "messages[0]")


@pytest.mark.parametrize("session", [0, 5])
def test_a_run_that_does_the_same_steps_in_another_order_breaks_nothing(session):
    breakers = Breakers()
    one, other = [("assistant", "ls"), ("tool", RESULT)], [("assistant", "make"), ("tool", GO_ON)]
    for steps in (one, [*one, *other]):
        breakers.see(an_arrival(system(RULES), turns([("user", TASK), *steps]), session=session))
    messages = turns([("user", TASK), *other, *one])
    breakers.see(an_arrival(system(RULES), turns([("user", TASK)]), session=session))
    assert breakers.see(an_arrival(system(RULES), messages, session=session)) is None
