"""How many requests ran at once, and what let the next one begin. Pure functions of one round.

A queue behind a cap shows in three ways. No more than the cap ever produce at once; who waits begins just
after another has ended; and with answers of unequal lengths that stays so, while a limiter or a prefill that
is computed one after another lets requests begin at its own pace, and a static batch not before the longest
of the batch before has ended.
"""

from collections.abc import Sequence
from itertools import pairwise

from msgspec import Struct

from gateway.doctor.seen import Round, Stream, median, spread

LEAST_SHARE = 0.03
LEAST_S = 0.004
"""So long, as a share of a usual answer and in seconds, must a number run at once to count: reads from two
sockets may come in the wrong order by a moment."""

WAVE_GAP = 0.6
"""Nobody ends for this share of an answer's time: a wave is over. Jitter of 5 % leaves 0.9."""

UNLIKE = 1.5
"""So many times as many tokens: answers that were to be equal are not, and end in no waves."""

ALONE = 0.9
"""Of the later starts, if nobody else still ran: then a batch had ended as a whole."""

TOGETHER = 0.5
"""Of all but the first, if they begin with another, within `TOGETHER_SHARE` of a usual answer: a batch begins
as a whole too. What a limiter lets in one by one may find nobody running any more."""

TOGETHER_SHARE = 0.1

UNEVEN_SHARE, UNEVEN_S = 0.1, 0.02
"""Of a usual answer, and in seconds: starts that follow the ends before them more evenly than that followed
those ends and not the last of a batch. So do all starts where answers are equally long."""

BREAK = 1.5
"""So many times the usual time between two starts is a break."""

EVEN = 0.25
"""A pace of their own is even: the times between two starts miss the usual one by less than this share of it.
Slots that free together let several begin together, so their usual time is next to nothing."""

MARGIN = 0.5
"""How much better an explanation of the starts must be than the other one."""


def running_at_once(round_: Round) -> int | None:
    """The most that ran at once for more than a moment; None where that cannot be told."""
    answered = round_.answered
    if not answered:
        return None
    if round_.streamed:
        return _peak([(it.first_at or 0.0, it.ended_at) for it in answered])
    return _in_first_wave(round_)


def _peak(spans: Sequence[tuple[float, float]]) -> int:
    usual_s = median([end - start for start, end in spans])
    enough_s = max(LEAST_S, LEAST_SHARE * usual_s)
    edges = sorted([(start, 1) for start, _ in spans] + [(end, -1) for _, end in spans])
    at_s: dict[int, float] = {}
    running, before = 0, edges[0][0]
    for at, change in edges:
        at_s[running] = at_s.get(running, 0.0) + at - before
        running, before = running + change, at
    total_s = 0.0
    for count in sorted(at_s, reverse=True):
        total_s += at_s[count]
        if count and total_s >= enough_s:
            return count
    return 1


def sent_at_once(round_: Round) -> int:
    """The most that were on their way or in work at once: fewer than were wanted where the doctor itself, or
    whoever takes connections, could not keep up, and then the round shows no limit above that."""
    spans = [(it.sent_at if it.written_at is None else it.written_at, it.ended_at) for it in round_.answered]
    return _peak(spans) if spans else 0


def waves(took_s: Sequence[float]) -> list[int]:
    """Of equal requests whose answers came in one piece: how many ended together, wave by wave. One wave
    where they all ended together."""
    ordered = sorted(took_s)
    sizes = [1]
    for before, after in pairwise(ordered):
        if after - before >= WAVE_GAP * ordered[0]:
            sizes.append(1)
        else:
            sizes[-1] += 1
    return sizes


def _in_first_wave(round_: Round) -> int | None:
    """None where they ended one by one, as behind a limiter or a serial prefill."""
    tokens = [it.tokens for it in round_.answered]
    if max(tokens) > UNLIKE * min(tokens):
        return None
    took_s = [it.ended_at - it.sent_at for it in round_.answered]
    sizes = waves(took_s)
    if len(sizes) == 1:
        return sizes[0] if _is_a_wave(took_s) else None
    # A batch engine that is empty begins with whoever comes first, alone; the next batch is a full one.
    return sizes[1] if sizes[0] == 1 else sizes[0]


def ends_one_by_one(streams: Sequence[Stream]) -> bool:
    """Of equal requests whose answers came in one piece: neither together nor in waves."""
    took_s = [it.ended_at - it.sent_at for it in streams if it.is_ok]
    return bool(took_s) and len(waves(took_s)) == 1 and not _is_a_wave(took_s)


def _is_a_wave(took_s: Sequence[float]) -> bool:
    return max(took_s) <= (1 + WAVE_GAP) * min(took_s)


EARLY = 0.6
"""Of the shortest of the long ones: the short one must have been sent by then, else one of them may have
ended by itself before it could be answered."""


def _were_long(long: Sequence[Stream], short: Stream) -> bool:
    """Whether the long ones were what they were to be: some endpoints answer as long as they like."""
    answered = [it for it in long if it.is_ok]
    least_s = min(it.ended_at - it.sent_at for it in answered)
    as_asked = all(2 * it.tokens >= it.shape.output_tokens for it in answered)
    return as_asked and short.sent_at - min(it.sent_at for it in answered) <= EARLY * least_s


def held(probe: Round) -> bool | None:
    """Whether the short request had to wait for one of the long ones to end."""
    *long, short = probe.streams
    if not short.is_ok or not any(it.is_ok for it in long) or not _were_long(long, short):
        return None
    answered_at = short.ended_at if short.first_at is None else short.first_at
    return answered_at >= min(it.ended_at for it in long if it.is_ok)


class Starts(Struct, frozen=True):
    """How those began who could not begin at once, of a round with unequal lengths.

    `behind_ends_s`: how unevenly they followed the end that made room for them if so many slots are there.
    `paced_s`: how unevenly they followed one another. `every_s`: the usual time between two. `alone`: the
    share that began when nobody else was left running. `together`: the share of all that began with another.
    `uneven`: whether the ends that made room were not what they followed. `breaks`: how often none began for
    much longer than usual, which is once for each wave of equal requests behind a cap, and never where
    prompts are computed in turn.
    """

    slots: int
    count: int
    behind_ends_s: float
    paced_s: float
    every_s: float
    alone: float
    together: float
    breaks: int
    uneven: bool = True

    @property
    def comes_in_waves(self) -> bool:
        return self.breaks * self.slots >= self.count

    @property
    def in_step(self) -> bool:
        """As a batch does, and also slots whose answers are equally long."""
        return self.alone >= ALONE and self.together >= TOGETHER

    @property
    def in_batches(self) -> bool:
        """In step, though the ends before them were not."""
        return self.in_step and self.uneven

    @property
    def is_paced(self) -> bool:
        """They begin at a pace of their own, whoever ends."""
        return self.paced_s < min(EVEN * self.every_s, MARGIN * self.behind_ends_s)

    @property
    def follow_ends(self) -> bool:
        return self.behind_ends_s < MARGIN * self.paced_s


def _begun(streams: Sequence[Stream]) -> list[tuple[float, float]]:
    """First token and end of each, in the order of their starts."""
    return sorted((it.first_at, it.ended_at) for it in streams if it.first_at is not None)


def starts(streams: Sequence[Stream], slots: int) -> Starts | None:
    """None where nobody had to wait, or first tokens were not seen."""
    begun = _begun(streams)
    later = begun[slots:]
    if not later:
        return None
    ends = sorted(end for _, end in begun)
    behind = [first - ends[place] for place, (first, _) in enumerate(later)]
    gaps = [after[0] - before[0] for before, after in pairwise(begun)][slots - 1 :]
    every_s = median(gaps)
    return Starts(
        slots=slots,
        count=len(later),
        behind_ends_s=spread(behind),
        paced_s=spread(gaps),
        every_s=every_s,
        alone=sum(_nobody_left(begun, first) for first, _ in later) / len(later),
        together=_together(begun),
        breaks=sum(gap > BREAK * every_s for gap in gaps),
        uneven=_are_uneven(behind, median([end - first for first, end in begun])),
    )


def _are_uneven(behind: Sequence[float], usual_s: float) -> bool:
    """By the mean and not the median: in batches of two every second one follows its end at once."""
    mean = sum(behind) / len(behind)
    missed_s = sum(abs(it - mean) for it in behind) / len(behind)
    return missed_s > max(UNEVEN_S, UNEVEN_SHARE * usual_s)


def _together(begun: Sequence[tuple[float, float]]) -> float:
    moment_s = max(LEAST_S, TOGETHER_SHARE * median([end - first for first, end in begun]))
    near = [after[0] - before[0] <= moment_s for before, after in pairwise(begun)]
    with_another = [before or after for before, after in zip([False, *near], [*near, False], strict=True)]
    return sum(with_another) / len(begun)


def _nobody_left(begun: Sequence[tuple[float, float]], first: float) -> bool:
    """Whether nobody who ran before the last end before `first` still ran then."""
    ended = [end for _, end in begun if end <= first]
    if not ended:
        return False
    freed_at = max(ended)
    return not any(start < freed_at and end > first for start, end in begun)


def followed_an_end(streams: Sequence[Stream], slots: int) -> float:
    """The share of those who waited that began when the number running was one below `slots`: only an end can
    have let them in."""
    begun = _begun(streams)
    later = begun[slots:]
    if not later:
        return 0.0
    held = sum(sum(1 for s, e in begun if s < first < e) < slots for first, _ in later)
    return held / len(later)
