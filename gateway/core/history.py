"""What has happened to the messages of a conversation that went on from a prompt that is known."""

from collections import Counter
from collections.abc import Sequence
from difflib import SequenceMatcher

from gateway.core.differ import (
    ALIKE,
    CHUNK_ORDER,
    COMPACTION,
    EDITED_HISTORY,
    MOVED_REMINDER,
    OTHER,
    grows,
    missing,
)
from gateway.core.prompts import EVIDENCE_BYTES, Found, Pair, common_bytes
from gateway.core.shapes import Segment, first_difference
from gateway.core.volatile import MASKS

_SUMMARY_WORDS = ("summar", "compact", "condens", "continued from", "previous conversation", "zusammenfass")
_LONG_HISTORY = 3
_FAR_LONGER = 6
_INPUT_ROLES = ("user", "tool", "function", "system", "developer")
_LOOKED_AT = 256


def body_change(pair: Pair) -> Found | None:
    """None where the new prompt ends or goes on, or is another question after the same start."""
    old, new = pair.old.body, pair.new.body
    at = first_difference(old.digests, new.digests)
    if is_continued(pair, at) or _is_other_question(pair, at):
        return None
    is_fork = _is_fork(pair, at)
    count = _shuffled(old.digests[at:], new.digests[at:])
    is_run = is_fork and (
        _is_answer_anew(pair, at) or (pair.is_crowded and not _is_all_but_last(pair, at + count))
    )
    if sum(old.sizes[at : at + count]) >= EVIDENCE_BYTES and not is_run:
        is_moved = pair.is_reminder(old.digests[at]) or pair.is_reminder(new.digests[at])
        is_moved = is_moved or _is_one_moved_back(old.digests[at : at + count], new.digests[at:])
        return Found(MOVED_REMINDER if is_moved else CHUNK_ORDER, at)
    if is_fork:
        return _compaction(pair, at)
    is_followed = bool(rest := old.digests[at + 1 : at + 2]) and rest == new.digests[at + 1 : at + 2]
    if is_followed or common_bytes(old, new, at) >= EVIDENCE_BYTES:
        return _changed(pair, at)
    return _without_evidence(pair, at)


def is_continued(pair: Pair, at: int) -> bool:
    """Whether one of them is the other's beginning, where they differ `at`. The last message may have been
    added to: a raw prompt, an answer begun by the client."""
    old, new = pair.old.body.digests, pair.new.body.digests
    if at in (len(old), len(new)):
        return True
    if at != len(old) - 1:
        return False
    one, other = pair.look(old[at]), pair.look(new[at])
    return one is not None and other is not None and grows(one, other)


def _is_other_question(pair: Pair, at: int) -> bool:
    """Whether the first message is the same but for a number or a date, in a prompt that is no longer: "fix
    issue 12"."""
    old, new = pair.old.body.digests, pair.new.body.digests
    if at > 0 or len(new) > len(old):
        return False
    change = pair.change(old[at], new[at], pair.body_segments[at])
    return change is not None and change.kind in MASKS


def _is_fork(pair: Pair, at: int) -> bool:
    """Whether they are two runs that began alike. An answer that was edited, and another that was generated,
    stand where an earlier prompt ended; a run does not go on from the other's end. Where no session is named,
    nothing else tells them apart."""
    if pair.is_named:
        return _is_answer_anew(pair, at) and not _goes_on(pair, at)
    return pair.is_crowded or (pair.has_others and _is_answer_anew(pair, at)) or not _goes_on(pair, at)


def _is_answer_anew(pair: Pair, at: int) -> bool:
    """Whether the answer that differs `at` begins where an earlier prompt ended."""
    start, segments = at, pair.body_segments
    while start > 0 and segments[start - 1].role and not _is_input(segments[start - 1]):
        start -= 1
    return start in pair.turns


def _goes_on(pair: Pair, at: int) -> bool:
    """Whether the new prompt has an answer to the old one, behind what that ended with."""
    old, new = pair.old.body.digests, pair.new.body.digests
    last = len(old) - 1
    if at == last:
        end = at
    elif old[last] in new[at:]:
        end = new.index(old[last], at) + 1
    elif len(new) > last and pair.likeness(old[last], new[last], is_session=True) >= ALIKE:
        end = last + 1
    else:
        return False
    return not all(map(_is_input, pair.body_segments[end:]))


def _is_input(segment: Segment) -> bool:
    return segment.role in _INPUT_ROLES or segment.role.endswith("_output")


def _shuffled(old: Sequence[int], new: Sequence[int]) -> int:
    """How many of the first are the same in another order; 0 if none are."""
    left: Counter[int] = Counter()
    for count, (one, other) in enumerate(zip(old[:_LOOKED_AT], new[:_LOOKED_AT], strict=False), 1):
        for digest, step in ((one, 1), (other, -1)):
            left[digest] += step
            if not left[digest]:
                del left[digest]
        if not left:
            return count
    return 0


def _is_all_but_last(pair: Pair, end: int) -> bool:
    """Whether one message follows in both: examples before a question."""
    return len(pair.old.body.codes) == len(pair.new.body.codes) == end + 1


def _is_one_moved_back(old: Sequence[int], new: Sequence[int]) -> bool:
    """Whether the first of at least three now stands behind the others."""
    return len(old) > 2 and old[1:] == new[: len(old) - 1]


def _changed(pair: Pair, at: int) -> Found:
    """Something that comes later is the same in both: what is before that?"""
    old, new = pair.old.body, pair.new.body
    gone, come = _before_what_is_same(old.digests[at:], new.digests[at:])
    if not come:
        return Found(_kind_of_move(pair, old.digests[at : at + gone], new.digests[at:]), at)
    if not gone:
        return Found(_kind_of_move(pair, new.digests[at : at + come], old.digests[at:]), at)
    gone_bytes, come_bytes = sum(old.sizes[at : at + gone]), sum(new.sizes[at : at + come])
    if gone >= _LONG_HISTORY and come < gone and 2 * come_bytes < gone_bytes:
        return Found(COMPACTION, at)
    return _edited(pair, at) or Found(EDITED_HISTORY, at)


def _before_what_is_same(old: Sequence[int], new: Sequence[int]) -> tuple[int, int]:
    """How many segments stand in each before the longest run that both have."""
    old, new = old[:_LOOKED_AT], new[:_LOOKED_AT]
    match = SequenceMatcher(None, old, new, autojunk=False).find_longest_match()
    return (match.a, match.b) if match.size else (len(old), len(new))


def _kind_of_move(pair: Pair, some: Sequence[int], elsewhere: Sequence[int]) -> str:
    """Of segments that one of the prompts lacks here."""
    is_moved = any(map(pair.is_reminder, some)) or (len(some) == 1 and some[0] in elsewhere)
    return MOVED_REMINDER if is_moved else EDITED_HISTORY


def _edited(pair: Pair, at: int) -> Found | None:
    """What became of one message, if it is still the same one."""
    old, new = pair.old.body.digests, pair.new.body.digests
    change = pair.change(old[at], new[at], pair.body_segments[at])
    one, other = pair.look(old[at]), pair.look(new[at])
    gone = Counter[int]() if one is None or other is None else missing(one, other)
    if pair.stands_in(gone, new[at + 1 :]):
        # Lines that left this message and stand in a later one.
        return pair.found(MOVED_REMINDER, at, change, old[at])
    if change is None:
        return None
    return pair.found(EDITED_HISTORY if change.kind == OTHER else change.kind, at, change, old[at])


def _without_evidence(pair: Pair, at: int) -> Found | None:
    """Nothing later is the same. It is the same conversation all the same if the message is but for what
    changes by itself and the old prompt ended with it, or the next one is as well; or if it tells of what was
    left out."""
    old, new = pair.old.body, pair.new.body
    if at + 1 < len(new.digests):
        is_last = at + 1 == len(old.digests)
        if is_last or pair.is_same_but(old.digests[at + 1], new.digests[at + 1]):
            found = _edited(pair, at)
            if found is not None:
                return found
    return _compaction(pair, at)


def _compaction(pair: Pair, at: int) -> Found | None:
    old, new = pair.old.body, pair.new.body
    is_shorter = len(old.digests) - at >= _LONG_HISTORY and 2 * sum(new.sizes[at:]) < sum(old.sizes[at:])
    return (
        Found(COMPACTION, at) if is_shorter and (_is_summary(pair, at) or _is_begun_anew(pair, at)) else None
    )


def _is_summary(pair: Pair, at: int) -> bool:
    text = pair.body_segments[at].text[:4096].lower()
    return any(word in text for word in _SUMMARY_WORDS)


def _is_begun_anew(pair: Pair, at: int) -> bool:
    """Whether a session goes on from another start, of far fewer messages. A question of its own would have
    been seen before it was answered."""
    if at > 0 or not pair.is_named or pair.has_others or pair.is_crowded:
        return False
    old, new = pair.old.body.codes, pair.new.body.codes
    is_answered = any(it.role and not _is_input(it) for it in pair.body_segments)
    return is_answered and len(old) >= _FAR_LONGER and 2 * len(new) <= len(old)
