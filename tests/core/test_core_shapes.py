from array import array
from collections import Counter

import pytest

from gateway.core.pieces import MAX_JSON, MAX_JSON_CHARS
from gateway.core.shapes import (
    HEAD_CHARS,
    MASKED_CHARS,
    MAX_PIECES,
    MAX_PLACES,
    PLACE_CHARS,
    SEGMENT_CHARS,
    SHAPE_BYTES,
    Lines,
    Segment,
    Shapes,
    first_difference,
    outline,
    shape_of,
)


def shape(text, code="s", role=""):
    return shape_of(Segment(code, "system[0]", text, role), Lines())


def test_an_outline_has_codes_digests_and_sizes():
    one = outline([Segment("s", "system[0]", "é"), Segment("m", "messages[0]", "hi", "user")])
    assert (one.codes, list(one.sizes), one.total_bytes) == ("sm", [2, 2], 4)
    other = outline([Segment("s", "system[0]", "é"), Segment("m", "messages[0]", "hi", "assistant")])
    assert one.digests[0] == other.digests[0]
    assert one.digests[1] != other.digests[1]
    assert one.kept_bytes > 0


def test_lone_surrogates_have_digests():
    assert outline([Segment("m", "messages[0]", "\ud800")]).total_bytes == 3


@pytest.mark.parametrize(
    ("old", "new", "same"),
    [([], [], 0), ([1], [], 0), ([1, 2], [1, 2], 2), ([1, 2], [1, 2, 3], 2), ([1, 2, 3, 4], [1, 2, 9, 4], 2),
     ([9, 2], [1, 2], 0), ([1, 2, 3, 4, 5], [1, 2, 3, 4, 6], 4)],
)  # fmt: skip
def test_where_two_lists_begin_to_differ(old, new, same):
    assert first_difference(array("Q", old), array("Q", new)) == same


def test_white_space_dates_and_ids_do_not_make_another_skeleton():
    one, other = shape("Now: 10:15\n- read  \n\n- write"), shape("Now: 10:16\n- read\n- write")
    assert one.skeleton == other.skeleton
    assert one.solid != other.solid
    assert one.same_but(other)
    assert shape("a  b\n").solid == shape("a b").solid


def test_places_are_kept_with_their_offsets_and_masked():
    spans = shape("Be kind.\nToday: 2026-12-01, run 3").spans
    assert [(it.kind, it.piece, it.offset, it.look) for it in spans] == [
        ("timestamp", 1, 16, "Today: 2026-··-··"),
        ("counter", 1, 32, "Today: ····-··-··, x ·"),
    ]


def test_a_masked_shape_is_at_most_512_bytes():
    many = shape("\n".join(f"at 10:{n:02d} on the {n}th of a long line of words" for n in range(60)))
    assert 0 < sum(len(it.look.encode()) for it in many.spans) <= SHAPE_BYTES
    assert len(many.spans) > 60


def test_no_more_places_and_lines_are_kept_than_a_number():
    many = shape(" \n".join(f"n {n}" for n in range(1500)))
    assert len(many.spans) == 256
    assert len(many.pieces) == len(many.starts) == MAX_PIECES
    assert shape("\n".join(["word"] * 1500)).pieces != shape("\n".join(["word"] * 1501)).pieces


def test_of_long_texts_the_start_and_the_end_are_looked_at():
    text = "begin\n" + "x" * HEAD_CHARS + "\nend"
    assert shape(text).chars == len(text)
    assert shape(text).pieces[0] == shape("begin").pieces[0]
    assert shape(text).pieces[-1] == shape("end").pieces[0]


def test_of_long_messages_dates_are_looked_for_at_the_start_and_the_end():
    text = "\n".join(["at 10:15", *["plain text"] * MASKED_CHARS, "at 10:16"])
    middle = text.replace("plain text\n" * 900, "plain text\nat 10:20\n" + "plain text\n" * 899, 1)
    values = [it.look for it in shape(text[:30_000], "m", "user").spans]
    assert values == ["x ··:··"]
    assert len(shape(middle[:30_000], "m", "user").spans) <= 2


def test_long_lines_are_cut_so_that_what_moves_is_found_again():
    sentences = [f"This is the {word} sentence of a text without any line ends." for word in "abcdefgh"]
    one, other = shape(" ".join(sentences)), shape(" ".join(sentences[::-1]))
    assert sorted(one.pieces) == sorted(other.pieces)
    assert one.pieces != other.pieces
    assert len(shape("word " * 60 + " ").pieces) >= 1


def test_json_is_the_same_in_any_order_of_its_keys():
    assert shape('{"a": 1, "b": [2]}').ordered == shape('{"b": [2], "a": 1}').ordered != 0
    assert shape('Use this:\n{"a": 1, "b": 2}').ordered == shape('Use this:\n{"b": 2, "a": 1}').ordered
    fenced = "Use this:\n```json\n{}\n```\n".format
    assert shape(fenced('{"a": 1,\n "b": 2}')).ordered == shape(fenced('{"b": 2,\n "a": 1}')).ordered
    assert shape("no json").ordered == 0
    assert shape("{not json}").ordered == shape("{not json}").ordered
    assert shape("{'odd").ordered != shape("{'other").ordered


def test_reminders_are_taken_out():
    with_one = shape("Go on.\n<system-reminder>\nNo todos.\n</system-reminder>", "m", "user")
    assert with_one.bare == shape("Go on.").solid
    assert with_one.reminders == 1
    assert with_one.is_reminder
    assert shape("Go on </with> it", "m", "user").bare == 0
    assert shape("Plan mode is on.", "m", "system").is_reminder
    assert not shape("You are kind.", "s").is_reminder


def test_likeness_is_the_share_of_lines_that_both_have():
    assert shape("a\nb\nc\nd").likeness(shape("a\nb\nx\ny")) == 0.5


def test_shapes_are_made_once_and_those_used_last_are_kept():
    texts = [f"text {word}\n" * 20 for word in "abc"]
    segments = [Segment("s", "system[0]", text) for text in texts]
    keys = outline(segments).digests
    room = shape(texts[0]).kept_bytes * 2 + 10
    shapes = Shapes(room)
    first = shapes.put(keys[0], segments[0])
    assert shapes.put(keys[0], segments[0]) is first
    shapes.put(keys[1], segments[1])
    assert shapes.get(keys[0]) is first
    shapes.put(keys[2], segments[2])
    assert len(shapes) == 2
    assert shapes.get(keys[1]) is None
    assert shapes.get(keys[0]) is first
    assert shapes.kept_bytes <= room
    assert shapes.made_chars == 3 * (SEGMENT_CHARS + len(texts[0]))


def test_what_places_take_counts_and_what_would_be_too_much_waits():
    segment = Segment("m", "messages[0]", "at 10:15 and 10:16", "user")
    shapes = Shapes()
    assert shapes.put(1, segment) is not None
    assert shapes.made_chars == SEGMENT_CHARS + len(segment.text) + 2 * PLACE_CHARS
    shapes.until_chars = shapes.made_chars + 5
    assert shapes.put(2, Segment("m", "messages[1]", "six or more", "user")) is None
    assert shapes.get(2) is None
    assert shapes.passed_over == 1
    assert shapes.put(3, Segment("m", "messages[1]", "five.", "user")) is not None


def test_text_is_kept_only_where_it_may_be():
    segment = Segment("s", "system[0]", "Be kind.")
    assert Shapes().put(1, segment).text is None
    assert Shapes(keep_text=True).put(1, segment).text == "Be kind."


def test_what_clients_send_is_cut_and_sorted_in_any_form():
    for text in (
        "[",
        "}",
        "{]}",
        "x{]}\n" * 99,
        "[" * 99 + "]" * 99,
        "<state <state </x",
        '{"arguments":"]"}',
    ):
        assert shape(text, "m", "user").chars == len(text)
    assert shape('{"a":' + "1" * MAX_JSON_CHARS + "}").ordered


def test_lines_with_many_places_are_forgotten_sooner():
    lines = Lines(max_places=3)
    lines.look("at 10:15 and 10:16")
    first = lines.look("at 10:17")
    assert lines.look("at 10:17") is first
    lines.look("at 10:18")
    assert lines.places == 1
    assert lines.looked_at == 4


def test_a_vector_of_numbers_on_one_line_has_no_more_places_than_a_number():
    vector = "Vector: [" + ", ".join(f"0.{n:04d}" for n in range(4_000)) + "]"
    shapes = Shapes()
    shapes.put(1, Segment("s", "system[0]", vector))
    assert shapes.made_chars < len(vector) + SEGMENT_CHARS + PLACE_CHARS * (MAX_PLACES + 64)


def test_dates_in_the_middle_of_one_long_line_are_passed_over():
    def line(middle):
        return " ".join(["word10"] * 1_500 + [middle] + ["word10"] * 1_500)

    assert shape(line("10:15"), "m", "user").pieces != shape(line("10:16"), "m", "user").pieces
    assert shape("10:15 " + line("a"), "m", "user").pieces == shape("10:16 " + line("a"), "m", "user").pieces


def test_data_on_one_line_is_cut_where_its_objects_end():
    rows = [f'{{"name":"item {word * 8}","price":true}}' for word in "abcdefghijkl"]
    one, other = ("[" + ",".join(it) + "]" for it in (rows, rows[::-1]))
    pieces = Counter(shape(one).pieces) & Counter(shape(other).pieces)
    assert pieces.total() >= 10
    assert len(shape("a" * 1_000).pieces) == 4
    assert len(shape(" " * 1_000 + "a").pieces) == 1
    assert shape("a " + " " * 999 + "b").pieces == shape("a\n\n\nb").pieces


def test_words_in_another_order_are_loosely_the_same():
    assert shape('{"required":["a","b"]}').loose == shape('{"required":["b","a"]}').loose
    assert shape('{"required":["a","b"]}').loose != shape('{"required":["a","c"]}').loose


def test_json_behind_a_label_or_in_a_call_s_arguments_is_sorted():
    assert (
        shape('State: {"a": 1, "b": 2}\nGo on.').ordered == shape('State: {"b": 2, "a": 1}\nGo on.').ordered
    )
    call = '{{"name":"f","arguments":"{{{}}}"}}'.format
    one, other = call(r"\"a\":1,\"b\":2"), call(r"\"b\":2,\"a\":1")
    assert shape(one, "c").ordered == shape(other, "c").ordered
    assert shape('{"name":"f","arguments":"odd"}').ordered != shape('{"name":"f","arguments":"}"}').ordered
    lines = [f'{{"a": {n}, "b": 2}}' for n in range(MAX_JSON)]
    fence = '```\n{{"a": {}}}\n```\n'.format
    assert (
        shape("\n".join([*lines, '{"a": 1, "b": 2}', "x"])).ordered
        != shape("\n".join([*lines, '{"b": 2, "a": 1}', "x"])).ordered
    )
    assert shape("".join(map(fence, range(MAX_JSON + 1)))).ordered
    assert shape("```\n{not closed").ordered


@pytest.mark.parametrize(
    "text",
    [
        "<status>1</status>",
        "<status>\n<b/>\n</STATUS>",
        "<a-reminder x='1'>y</a-reminder>",
        "<todo><todo>x</todo>",
    ],
)
def test_a_reminder_is_what_stands_between_its_tags(text):
    assert shape(f"{text}hi", "m", "user").bare == shape("hi").solid


def test_other_tags_are_none():
    assert shape("<b>x</b> <status/> </status> <todo>x</state>", "m", "user").reminders == 0
    two = shape("<todo>a</todo>\nGo on.\n<todo>b</todo>", "m", "user")
    assert (two.reminders, two.bare) == (2, shape("Go on.").solid)


@pytest.mark.parametrize(
    ("text", "role", "is_one"),
    [
        ("<status><job>1</job></status>", "user", True),
        ("<status><job>1</job></status>", "tool", False),
        ("<status><job>1</job></status>", "function_call_output", False),
        ("\n", "user", False),
        ("", "user", False),
        ("\n", "system", False),
        (" " * 90 + "hi", "user", False),
    ],
)
def test_results_of_tools_and_blank_texts_are_no_reminders(text, role, is_one):
    assert shape(text, "m", role).is_reminder is is_one


def test_lines_are_looked_at_once_and_forgotten_when_they_are_too_many():
    lines = Lines(max_lines=2)
    first = lines.look("at 10:15")
    assert lines.look("at 10:15") is first
    lines.look("b")
    lines.look("c")
    assert lines.look("at 10:15") == first
