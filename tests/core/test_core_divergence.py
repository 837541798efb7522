"""Where one prompt leaves another, told by segments; the whole of it is in `test_core_breakers_pairs.py`."""

from breaker_values import OTHER_RULES, RULES, a_pair, said, system, tool

from gateway.core.differ import differ, grows, missing
from gateway.core.divergence import family_break, session_break
from gateway.core.prompts import unfolded
from gateway.core.shapes import Lines, Outline, Segment, Shapes, outline, shape_of

TOOLS = [*tool(0, "read", "It reads.\n" + RULES), *tool(1, "write"), *tool(2, "run")]


def shape(text, code="m"):
    return shape_of(Segment(code, "messages[0]", text, "user"), Lines())


def change(old, new):
    return differ(shape(old), shape(new), new)


def told(pair, of=session_break):
    broken = of(pair)
    return None if broken is None else (broken.kind, broken.part)


def test_places_beyond_those_that_are_kept_have_their_kind_too():
    lines = [f"line {n} says nothing" for n in range(300)]
    old, new = "\n".join([*lines, "at 10:15"]), "\n".join([*lines, "at 10:16"])
    found = differ(shape(old, "s"), shape(new, "s"), new)
    assert found is not None
    assert found.kind == "timestamp"
    assert found.offset > len(new) // 2


def test_a_text_that_was_changed_where_nobody_looks_is_other():
    middle = "plain words\n" * 2_000
    old = f"at 10:15\n{middle}one{middle * 5}"
    found = differ(shape(old, "s"), shape(old.replace("one", "two"), "s"), old.replace("one", "two"))
    assert found is not None
    assert found.kind == "other"


def test_an_id_in_a_date_s_place_is_a_random_id():
    found = change("run 10:15 of it", "run a1b2c3d of it")
    assert found is None
    assert change(f"{RULES}\nat 3", f"{RULES}\nat 4").kind == "counter"


def test_where_a_text_changed_is_told_with_masks():
    found = change(f"Be kind.\nNow: 10:15\n{RULES}", f"Be kind.\nNow: 10:16\n{RULES}")
    assert (found.offset, found.before, found.after) == (14, "Now: ··:··", "Now: ··:··")
    other = change(f"{RULES}\nin /home/ann", f"{RULES}\nin /home/bob")
    assert other.after.endswith("21 lines, from line 21: x /x/x")


def test_a_text_grows_if_all_but_its_last_line_stays():
    assert grows(shape("a\nb"), shape("a\nb and c\nd"))
    assert grows(shape("a\nb 1"), shape("a\nb 1\nc"))
    assert not grows(shape("a\nb 1"), shape("a\nb 2\nc"))
    assert not grows(shape("a 1\nb"), shape("a 2\nb and c"))
    assert not grows(shape("a\nb"), shape("x\nb"))
    assert not grows(shape("a"), shape("a\nb"))


def test_missing_lines_are_told_if_there_are_no_others():
    assert missing(shape("a\nb"), shape("a")).total() == 1
    assert not missing(shape("a\nb"), shape("a\nc"))


def test_nothing_of_two_prompts_that_go_on():
    assert session_break(a_pair(system(RULES), system(RULES), said("hi"), said("hi", "ho", "go"))) is None
    assert session_break(a_pair(system(RULES), system(RULES), said("hi", "ho"), said("hi"))) is None


def test_a_raw_prompt_that_goes_on_in_its_last_piece_breaks_nothing():
    assert session_break(a_pair([], [], said("a\nb"), said("a\nb and c\nd"))) is None


def test_what_has_been_forgotten_is_compared_by_its_hash_alone():
    pair = a_pair(system(RULES), system(RULES), said("hi", "one", RULES), said("hi", "two", RULES, "x", "y"))
    pair.look = Shapes().get
    assert told(pair) == ("edited_history", "messages[1]")
    pair = a_pair(system(RULES), system(RULES + "\nat 10:15"), said("hi"), said("hi"))
    pair.look = Shapes().get
    assert told(pair) is None


def test_system_texts_in_another_order():
    pair = a_pair(system(RULES, OTHER_RULES), system(OTHER_RULES, RULES), said("hi"), said("hi", "ho"))
    assert told(pair) == ("chunk_order", "system[0]")


def test_a_system_text_that_is_taken_out_or_put_in():
    more = "Plan mode is on.\nOnly read files."
    without, with_it = system(RULES, OTHER_RULES), system(RULES, more, OTHER_RULES)
    assert told(a_pair(with_it, without, said("hi"), said("hi", "ho"))) == ("other", "system[1]")
    assert told(a_pair(without, with_it, said("hi"), said("hi", "ho"))) == ("other", "system[1]")
    moved = a_pair(with_it, without, said("hi"), said("hi", "ho", more))
    assert told(moved) == ("moved_reminder", "system[1]")
    hoisted = a_pair(system(RULES), system(RULES, more), said("hi", more), said("hi"))
    assert told(hoisted) == ("moved_reminder", "system[1]")
    assert told(a_pair(system(RULES, more), system(RULES), said("hi"), said("hi"))) == ("other", "system[0]")


def test_a_line_that_leaves_the_system_text_for_a_message():
    pair = a_pair(system(f"{RULES}\nOnly read."), system(RULES), said("hi"), said("hi", "ho", "Only read."))
    assert told(pair) == ("moved_reminder", "system[0]")


def test_another_system_text_is_another_conversation():
    assert told(a_pair(system(RULES), system(OTHER_RULES), said("hi"), said("hi", "ho"))) is None
    assert told(a_pair(system(RULES), [], said("hi"), said("hi", "ho"))) is None
    assert told(a_pair(system(RULES), system(RULES + "\nat 10:15"), said("hi"), said("ho"))) is None
    assert told(a_pair(system(RULES), system(RULES + "\nat 10:15"), said("hi"), [])) is None


def test_prompts_without_messages_are_compared_by_their_system_text():
    pair = a_pair(system(f"{RULES}\nat 10:15"), system(f"{RULES}\nat 10:16"))
    assert told(pair) == ("timestamp", "system[0]")


def test_tools_that_have_other_fields():
    more = [*tool(0, "read", "It reads.\n" + RULES)[:2], *TOOLS[3:]]
    assert told(a_pair(TOOLS, more, said("hi"), said("hi"))) == ("other", "tools[0]")
    extra = [*TOOLS, Segment("t", "tools[2]", "{}")]
    assert told(a_pair(TOOLS, extra, said("hi"), said("hi"))) == ("other", "tools[2]")


def test_a_family_needs_half_of_the_tools():
    few = [*system(RULES), *TOOLS[:3]]
    many = [*system(RULES), *TOOLS, *tool(3, "a"), *tool(4, "b")]
    assert told(a_pair(few, many), family_break) is None
    assert told(a_pair(few, many, said("hi"), said("hi"))) == ("tools_changed", "tools[1]")


def test_what_a_family_loses_little_by_is_told_only_if_it_changes_by_itself():
    assert told(a_pair(system(f"{RULES}\nin /a"), system(f"{RULES}\nin /b")), family_break) is None
    stamped = a_pair(system(f"{RULES}\nat 10:15"), system(f"{RULES}\nat 10:16"))
    assert told(stamped, family_break) == ("timestamp", "system[0]")
    early = a_pair(system(f"in /a\n{RULES}"), system(f"in /b\n{RULES}"))
    assert told(early, family_break) == ("other", "system[0]")


def test_the_text_around_a_change_is_told_where_it_is_kept():
    old, new = system(f"Now: 10:15\n{RULES}"), system(f"Now: 10:16\n{RULES}")
    shapes = Shapes(keep_text=True)
    for segment in (*old, *new):
        shapes.put(outline([segment]).digests[0], segment)
    broken = session_break(a_pair(old, new, said("hi"), said("hi")))
    assert broken.text is None
    pair = a_pair(old, new)
    pair.look = shapes.get
    before, after = session_break(pair).text
    assert before.startswith("Now: 10:15")
    assert after.startswith("Now: 10:16")
    assert len(after) == 200


def test_what_is_lost_reaches_to_the_end_of_the_shorter_prompt():
    before, after = said("hi", "one", "x" * 300), said("hi", "two", "x" * 300, "y" * 900)
    broken = session_break(a_pair(system(RULES), system(RULES), before, after))
    assert broken.at_bytes == outline(system(RULES)).total_bytes + 2
    assert broken.lost_bytes == 303


def test_a_message_put_in_before_others():
    before, after = said("hi", "a" * 40, "b" * 40), said("hi", "new", "a" * 40, "b" * 40)
    pair = a_pair(system(RULES), system(RULES), before, [it._replace(role="user") for it in after])
    pair.old.body = outline([it._replace(role="user") for it in before])
    assert told(pair) == ("edited_history", "messages[1]")


def test_empty_outlines_are_prompts_too():
    assert Outline().total_bytes == 0
    assert session_break(a_pair([], [])) is None


def test_what_was_forgotten_stands_nowhere():
    pair = a_pair(system(RULES), system(RULES), said("hi"), said("hi"))
    assert not pair.stands_in(pair.pieces(outline(system(RULES)).digests[0]), [12345])


def test_another_question_that_goes_on_is_another_conversation():
    pair = a_pair(system(RULES), system(RULES), said("Why is it slow?"), said("Write a poem.", "Ok.", "Go"))
    assert session_break(pair) is None


def test_another_mode_of_a_client_is_another_family():
    lines = RULES.split("\n")
    plan = "\n".join(["You plan only.", *lines[:14], "Write no files.", *lines[18:], *lines[:8]])
    act = "\n".join(["You act.", *lines, *lines[:8]])
    assert told(a_pair(system(plan), system(act)), family_break) is None
    assert told(a_pair(system(plan), system(act), said("hi"), said("hi", "ho"))) == ("other", "system[0]")


def test_lines_in_another_order_with_other_times_are_not_the_same_chunks():
    words = "abcdefgh"
    old = "\n".join(f"{word} was seen at 10:1{at}" for at, word in enumerate(words))
    new = "\n".join(f"{word} was seen at 11:2{at}" for at, word in enumerate(words[::-1]))
    assert change(old, new).kind == "other"
    assert change(old, "\n".join(old.split("\n")[::-1])).kind == "chunk_order"


def test_arguments_that_are_no_json_are_compared_as_text():
    call = Segment("c", "messages[1]", '{"name":"run","arguments":"{\'a\': 1}"}', "assistant", 1)
    assert unfolded(call) is call
    assert unfolded(call._replace(text='{"arguments":"{\\"b\\": 1}"}')).text == '{"arguments":{"b":1}}'
