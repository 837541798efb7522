from breaker_values import said

from gateway.core.blocks import chain
from gateway.core.conversations import MAX_OF_SESSION, Conversation, Conversations
from gateway.core.prompts import Prompt
from gateway.core.shapes import Outline, outline


def a_conversation(session, text, keys=()):
    segments = said(text)
    made = Conversation(Prompt(Outline(), outline(segments)), session, keys)
    made.set_tail(segments)
    made.ends_at(chain(text.encode(), "m"), len(text))
    return made


def test_those_used_last_are_remembered():
    known = Conversations(max_conversations=2)
    one, two, three = (a_conversation(at, f"{at}" * 300) for at in (1, 2, 3))
    known.put(one)
    known.put(two)
    known.touch(one)
    known.put(three)
    assert len(known) == 2
    assert known.begun_by(2, chain(b"2" * 300, "m")) is None
    assert known.begun_by(1, chain(b"1" * 300, "m")) is one
    known.forget(two)
    assert len(known) == 2


def test_a_session_has_so_many_conversations():
    known = Conversations()
    made = [a_conversation(1, f"{at}" * 300) for at in range(MAX_OF_SESSION + 1)]
    for it in made:
        known.put(it)
    assert known.candidates(1, ()) == made[1:]


def test_without_a_session_it_is_found_by_its_end_or_its_beginning():
    known = Conversations()
    text = "0" * 300
    one = a_conversation(0, text, (7, 8))
    known.put(one)
    assert known.begun_by(0, chain(text.encode() + b"1" * 9000, "m")) is one
    assert known.begun_by(0, chain(b"1" * 9000, "m")) is None
    assert known.begun_by(0, ()) is None
    assert known.candidates(0, (8,)) == [one]
    assert known.candidates(0, (7, 8)) == [one]
    other = a_conversation(0, text, (7,))
    known.put(other)
    known.forget(one)
    assert known.begun_by(0, chain(text.encode(), "m")) is other
    known.put(a_conversation(0, "short", (9,)))
    assert len(known) == 2


def test_a_conversation_is_bounded_in_bytes():
    known = Conversations(max_bytes=1500)
    for at in range(5):
        known.put(a_conversation(at + 1, f"{at}" * 300))
    assert 0 < known.kept_bytes <= 1500


def test_all_parts_of_a_message_are_read_again():
    segments = said("one", "two")
    segments[1] = segments[1]._replace(item=0)
    segments.append(said("x" * 300)[0]._replace(item=0))
    made = Conversation(Prompt(Outline(), outline(segments)), 1, ())
    made.set_tail(segments)
    assert (made.tail, made.tail_item) == (0, 0)
    made.set_tail([])
    assert made.tail == 3


def test_where_its_earlier_prompts_ended_is_remembered_once():
    made = a_conversation(1, "x" * 300)
    for texts in (("x" * 300,), ("x" * 300, "y"), ("x" * 300, "y")):
        made.read(said(*texts), outline(said(*texts)))
    assert list(made.turns) == [1, 2]


def test_of_a_session_s_conversations_the_longest_is_gone_on_from():
    known = Conversations()
    long, short = (a_conversation(1, "0" * size) for size in (9000, 3000))
    known.put(long)
    known.put(short)
    assert known.begun_by(1, chain(b"0" * 9900, "m")) is long
