"""What a cap costs, and what other numbers of slots would give: curves from the rounds of equal requests."""

from collections.abc import Sequence

from msgspec import Struct

from gateway.doctor.seen import Role, Round, Stream, median

FURTHEST = 2
"""So many times the number of streams that really ran a line may be drawn on."""

GROWS = 0.1
"""The least share that twice as many streams add to an aggregate that still grows."""


class Point(Struct, frozen=True, kw_only=True):
    """One round of equal requests. None where first tokens were not seen. `answer_s` are whole answers."""

    concurrency: int
    aggregate_tokens_per_s: float
    stream_tokens_per_s: float | None
    ttft_p50_s: float | None
    ttft_max_s: float | None
    answer_p50_s: float
    answer_max_s: float


class Line(Struct, frozen=True):
    """Seconds per token of one stream beside others: `alone_s` + `each_s` for each that runs. A decode step
    reads all weights once and each sequence's KV besides, so its time grows with the number by a line."""

    alone_s: float
    each_s: float

    def stream_rate(self, running: float) -> float:
        return 1 / (self.alone_s + self.each_s * running)

    def aggregate_rate(self, running: float) -> float:
        return running * self.stream_rate(running)


def points(rounds: Sequence[Round], limit: int | None) -> list[Point]:
    """By concurrency; of two rounds of one number the later counts."""
    latest = {it.wanted: it for it in rounds if it.role is Role.RAMP and it.answered}
    return [_point(it, limit) for it in latest.values()]


def _point(round_: Round, limit: int | None) -> Point:
    answered = round_.answered
    ttft = sorted(it.first_at - it.sent_at for it in answered if it.first_at is not None)
    answers = sorted(it.ended_at - it.sent_at for it in answered)
    rates = [rate for it in answered if (rate := _stream_rate(it)) is not None]
    return Point(
        concurrency=round_.wanted,
        aggregate_tokens_per_s=_aggregate(answered, min(limit or round_.wanted, len(answered))),
        stream_tokens_per_s=median(rates) if rates else None,
        ttft_p50_s=median(ttft) if ttft else None,
        ttft_max_s=ttft[-1] if ttft else None,
        answer_p50_s=median(answers),
        answer_max_s=answers[-1],
    )


def _stream_rate(stream: Stream) -> float | None:
    """Tokens/s after the first piece, which holds more than one token where something hands on in bursts."""
    if stream.first_at is None or stream.ended_at <= stream.first_at:
        return None
    later = sum(at > stream.first_at for at in stream.arrivals)
    return later * stream.tokens / len(stream.arrivals) / (stream.ended_at - stream.first_at)


def _aggregate(answered: Sequence[Stream], running: int) -> float:
    """Tokens/s until fewer than `running` are left: a last wave that is half empty tells nothing."""
    ends = sorted(it.ended_at for it in answered)
    until = ends[len(ends) - running] if all(it.arrivals for it in answered) else ends[-1]
    began = min(it.sent_at for it in answered)
    tokens = sum(_tokens_until(it, until) for it in answered)
    return tokens / (until - began) if until > began else 0.0


def _tokens_until(stream: Stream, until: float) -> float:
    if stream.ended_at <= until or not stream.arrivals:
        return float(stream.tokens)
    return stream.tokens * sum(at <= until for at in stream.arrivals) / len(stream.arrivals)


def fit(known: Sequence[Point], limit: int | None) -> Line | None:
    """The line through what streams took at each number that really ran. None with fewer than two numbers,
    and where more streams did not make each slower by a measure that can be told."""
    seen: dict[int, list[float]] = {}
    for it in known:
        if it.stream_tokens_per_s:
            ran = min(it.concurrency, limit or it.concurrency)
            seen.setdefault(ran, []).append(1 / it.stream_tokens_per_s)
    if len(seen) < 2:
        return None
    xs = list(seen)
    ys = [median(values) for values in seen.values()]
    mean_x, mean_y = sum(xs) / len(xs), sum(ys) / len(ys)
    each_s = sum((x - mean_x) * (y - mean_y) for x, y in zip(xs, ys, strict=True)) / sum(
        (x - mean_x) ** 2 for x in xs
    )
    each_s = max(0.0, each_s)
    alone_s = mean_y - each_s * mean_x
    return Line(alone_s, each_s) if alone_s > 0 else Line(0.0, mean_y / mean_x)


def gain(line: Line | None, slots: int, more: int) -> float | None:
    """What `more` slots would add to the aggregate, as a share of it; by the line, so an estimate."""
    if line is None:
        return None
    return line.aggregate_rate(slots + more) / line.aggregate_rate(slots) - 1


def waiting_share(round_: Round, limit: int) -> float | None:
    """Of all time to the first token, the share spent waiting for a slot; of whole answers where first tokens
    were not seen. Those that ran at once show what it takes without waiting."""
    took = _took(round_)
    if len(took) <= limit:
        return 0.0 if took else None
    usual_s = median(took[:limit])
    total_s = sum(took)
    return sum(max(0.0, one - usual_s) for one in took) / total_s if total_s else None


def unqueued_s(round_: Round, limit: int | None) -> float:
    """Time to the first token of those who did not wait."""
    took = _took(round_)
    return median(took[: limit or len(took)])


def _took(round_: Round) -> list[float]:
    streamed = round_.streamed
    ends = [(it.first_at if streamed else None) or it.ended_at for it in round_.answered]
    return sorted(end - it.sent_at for end, it in zip(ends, round_.answered, strict=True))


def most_slots(known: Sequence[Point], line: Line | None, limit: int | None, rate: float) -> int | None:
    """The most streams at once that each keep `rate` tokens/s: by what was measured, and between and beyond
    that by the line, up to twice the most that ran. 0: not even one does. None: nothing is known of streams.
    """
    measured = {
        min(it.concurrency, limit or it.concurrency): it.stream_tokens_per_s
        for it in known
        if it.stream_tokens_per_s
    }
    if not measured:
        return None
    kept = max((count for count, value in measured.items() if value >= rate), default=0)
    slow = [count for count, value in measured.items() if value < rate and count > kept]
    if line is None or line.each_s <= 0:
        return kept
    most = min(slow) - 1 if slow else FURTHEST * max(measured)
    return max(kept, min(most, int((1 / rate - line.alone_s) / line.each_s + 1e-9)))


def saturates_at(known: Sequence[Point]) -> int | None:
    """The number of streams beyond which the aggregate hardly grew: by less than `GROWS` for twice as many,
    and by a part of that for fewer. None where it still grew at the last."""
    for place, before in enumerate(known[:-1]):
        more = known[place + 1].concurrency / before.concurrency - 1
        best = max(it.aggregate_tokens_per_s for it in known[place + 1 :])
        if best < (1 + GROWS * more) * before.aggregate_tokens_per_s:
            return before.concurrency
    return None
