"""The examination: which rounds are run, and when enough is known. Bounded in requests and in time."""

import asyncio
from dataclasses import dataclass
from typing import Protocol

from gateway.doctor.behind import Behind
from gateway.doctor.client import Client, shown
from gateway.doctor.overlap import running_at_once, starts
from gateway.doctor.own import carries_at_once
from gateway.doctor.pace import tiny_pace
from gateway.doctor.requests import forms
from gateway.doctor.rounds import Rounds
from gateway.doctor.seen import Findings, Role, Round, Shape, Stream, median
from gateway.doctor.verdict import more_when_small, probed_limit, ramp_limit
from gateway.engines.base import Answer
from gateway.engines.reading import MODELS_PATH, model_cards, model_names

_FIRST, _SECOND = 12, 36
"""Output tokens of the two requests that show what a prompt and a token take."""

_DECODE_S, _LONGEST_S = 1.2, 6.0
_LEAST_TOKENS, _MOST_TOKENS = 12, 256
_SLOW_PROMPT_S = 0.8
_AT_ONCE = 0.15
"""Of an answer's time: if all its text comes within less, it was held back until then."""

_UNEQUAL = (0.5, 1.5, 0.75, 1.25)
_MEETS_S, _ASKS_WHY_S = 30.0, 5.0
_LONG = 3
_ATTEMPTS = 3
_PROBE_AT = 0.45
"""Of what an answer of usual length takes beside as many: the long ones have their slots then, and none has
ended, also where prompts take most of the time or all answers are equally long whatever is asked for."""
_TINY = 12
_AGAIN = 3
_PATIENCE_S = 15.0


class CannotExamine(Exception):
    """Nothing can be found out: the message says why and what to do."""


class Progress(Protocol):
    def __call__(self, what: str, share: float) -> None:
        """`share` of the examination's usual course, 0 to 1."""
        ...


@dataclass(frozen=True, kw_only=True)
class Options:
    """`prompt_tokens` and `output_tokens` None: chosen by the endpoint's speed. `max_s` bounds it all."""

    base: str
    model: str | None = None
    max_concurrency: int = 32
    engine_base: str | None = None
    stream: bool = True
    prompt_tokens: int | None = None
    output_tokens: int | None = None
    max_s: float = 240.0


class Examination:
    """One run. `findings` is all that is known, at any time; `run` may be cancelled."""

    def __init__(self, client: Client, options: Options, progress: Progress) -> None:
        self._client = client
        self._options = options
        self._progress = progress
        self._began_at = client.now()
        prompt = options.prompt_tokens or 64
        self.findings = Findings(
            url=options.base,
            model=options.model or "",
            shape=Shape(prompt, options.output_tokens or _SECOND),
            max_concurrency=options.max_concurrency,
        )
        form = forms(options.stream)[0]
        self._rounds = Rounds(client, options.base, self.findings, form, stream=options.stream)

    async def run(self) -> None:
        """Raises `CannotExamine`."""
        self._progress("how much the doctor itself can carry", 0.0)
        self.findings.client_streams = await carries_at_once(self._client, self._options.max_concurrency)
        self._progress("who is there", 0.02)
        await self._meet()
        self._progress("what one request takes", 0.05)
        await self._calibrate()
        await self._ramp()
        await self._look_closer()
        self._progress("done", 1.0)

    async def _meet(self) -> None:
        base, findings = self._options.base, self.findings
        models = await self._client.get(base + MODELS_PATH, _MEETS_S)
        if models is None:
            why = await self._client.why_not(base + MODELS_PATH, _ASKS_WHY_S)
            raise CannotExamine(f"{base}: {why or 'no answer'}")
        if models.status in (401, 403):
            raise CannotExamine(f"{base}{MODELS_PATH} answers {models.status}: give --api-key KEY")
        if not findings.model:
            names = model_names(model_cards({MODELS_PATH: models}))
            if not names:
                raise CannotExamine(_no_model(base, models))
            findings.model = names[0]
        looks = [await self._rounds.look_once() for _ in range(3)]
        seen = [look for look in looks if look is not None]
        findings.idle_look_s = median(seen) if seen else None
        at = self._options.engine_base
        behind = self._rounds.behind = Behind(self._client, at or base, direct=at is not None)
        findings.engine = await behind.look()
        if at is not None and findings.engine is None:
            raise CannotExamine(
                f"--engine-url {at}: {await self._client.why_not(at + MODELS_PATH, _ASKS_WHY_S)}"
            )

    # What one request takes

    async def _calibrate(self) -> None:
        prompt = self.findings.shape.prompt_tokens
        first = await self._first_answer(Shape(prompt, _FIRST))
        second = await self._second_answer(Shape(prompt, _SECOND))
        if self._options.stream and _came_at_once(second):
            self._rounds.in_one_piece = True
        took_a, took_b = first.ended_at - first.sent_at, second.ended_at - second.sent_at
        per_token_s = max(1e-4, (took_b - took_a) / max(1, second.tokens - first.tokens))
        prompt_s = max(0.0, took_b - per_token_s * second.tokens)
        self.findings.is_gateway = second.gateway_queue_s is not None
        if prompt_s > _SLOW_PROMPT_S and self._options.prompt_tokens is None:
            prompt = 24
        tokens = self._options.output_tokens or _tokens_for(prompt_s, per_token_s)
        self.findings.shape = Shape(prompt, tokens)
        self.findings.single_s = prompt_s + per_token_s * tokens

    async def _first_answer(self, shape: Shape) -> Stream:
        """Finds the form in which the endpoint takes requests."""
        refusals: list[Stream] = []
        for form in forms(self._options.stream):
            self._rounds.form = form
            one = await self._rounds.alone(shape)
            if one.is_ok:
                return one
            if one.status == 0:
                raise CannotExamine(f"{self._options.base}{form.path}: {one.error}")
            if one.status in (401, 403):
                raise CannotExamine(f"{self._options.base} answers {one.status}: give --api-key KEY")
            refusals.append(one)
            if one.is_refused:
                break
        worst = refusals[0]
        raise CannotExamine(
            f"{self._options.base} refuses a request of {shape.prompt_tokens} tokens for model "
            f"{self.findings.model!r}: {worst.status} {worst.error}"
        )

    async def _second_answer(self, shape: Shape) -> Stream:
        for _ in range(_ATTEMPTS):
            one = await self._rounds.alone(shape)
            if one.is_ok:
                return one
        raise CannotExamine(
            f"{self._options.base}: one request was answered, the next {_ATTEMPTS} were not: "
            f"{one.status or ''} {one.error}"
        )

    # More and more at once

    async def _ramp(self) -> None:
        levels = _levels(self._options.max_concurrency)
        for place, count in enumerate(levels):
            if place and not self._has_time_for(count):
                self.findings.interrupted = f"stopped before {count} at once: the time was up (--max-seconds)"
                return
            self._progress(f"{count} at once", 0.1 + 0.5 * place / len(levels))
            shapes = [self.findings.shape] * count
            ran = await self._rounds.send(Role.RAMP, shapes)
            if ran.refused or self._is_clear(count):
                return
            if not ran.answered:
                why = f"none of {count} requests at once was answered: {ran.streams[0].error}"
                if not place:
                    raise CannotExamine(why)
                self.findings.interrupted = why
                return

        found = ramp_limit(self.findings.of(Role.RAMP))
        if found is not None and found[1] == 1 and not self._rounds.in_one_piece:
            # One round alone may have been a bad moment.
            self._progress(f"{levels[-1]} at once, again", 0.6)
            await self._rounds.send(Role.RAMP, [self.findings.shape] * levels[-1])

    def _is_clear(self, count: int) -> bool:
        found = ramp_limit(self.findings.of(Role.RAMP))
        if found is None or found[1] < 2:
            return False
        return count >= 4 * found[0] or self._lasts_s(2 * count) > _PATIENCE_S

    def _lasts_s(self, count: int) -> float:
        """About how long `count` at once take, by the last round."""
        ramp = self.findings.of(Role.RAMP)
        if not ramp or not ramp[-1].streams:
            return self.findings.single_s or 1.0
        last = ramp[-1]
        took_s = max(it.ended_at for it in last.streams)
        return took_s * max(1.0, count / last.wanted)

    def _has_time_for(self, count: int) -> bool:
        return self._lasts_s(count) < 0.6 * self._options.max_s - (self._client.now() - self._began_at)

    # What it means

    async def _look_closer(self) -> None:
        ramp = [it for it in self.findings.of(Role.RAMP) if it.answered or it.refused]
        if any(it.refused for it in ramp):
            await self._try_again(max(1, len(ramp[-1].answered)))
            return
        found = ramp_limit(ramp)
        if self._rounds.in_one_piece:
            await self._probe(found[0] if found else None)
            return
        if found is None:
            return
        limit = found[0]
        self._progress("short and long ones mixed", 0.65)
        unequal = await self._rounds.send(Role.UNEQUAL, self._unequal(limit))
        if self._may_be_paced(unequal, limit):
            await self._send_tiny()
        self._progress("who is waited for", 0.8)
        await self._rounds.send(Role.LOOK, [self.findings.shape] * (limit + 1), looks=True)
        await self._send_small(limit)

    async def _send_small(self, limit: int) -> None:
        """Twice where more of them ran, since that changes what is said of the endpoint."""
        self._progress("smaller ones", 0.9)
        await self._rounds.send(Role.SMALL, self._small(limit))
        if more_when_small(self.findings, limit):
            await self._rounds.send(Role.SMALL, self._small(limit))

    def _unequal(self, limit: int) -> list[Shape]:
        shape = self.findings.shape
        count = max(limit + 2, min(self._options.max_concurrency, max(3 * limit, limit + 6)))
        tokens = [max(2, round(shape.output_tokens * share)) for share in _UNEQUAL]
        return [Shape(shape.prompt_tokens, tokens[place % len(tokens)]) for place in range(count)]

    def _small(self, limit: int) -> list[Shape]:
        shape = self.findings.shape
        small = Shape(max(4, shape.prompt_tokens // 4), max(6, shape.output_tokens // 2))
        return [small] * max(limit + 2, min(self._options.max_concurrency, max(3 * limit, limit + 4)))

    def _may_be_paced(self, unequal: Round, limit: int) -> bool:
        seen = starts(unequal.answered, limit)
        return seen is not None and not seen.follow_ends

    async def _probe(self, limit: int | None) -> None:
        """Answers in one piece show only when they end. So: long ones, and a short one beside them."""
        most = self._options.max_concurrency
        if limit is None and running_at_once(self.findings.of(Role.RAMP)[-1]) is not None:
            return
        if limit is not None:
            await self._send_small(limit)
            await self._probe_beside(limit)
            if limit > 1:
                await self._probe_beside(limit - 1)
        else:
            await self._send_tiny()
            if tiny_pace(self.findings) is not None:
                return
        await self._narrow(most)
        full = probed_limit(self.findings.of(Role.PROBE))[1]
        if full is None:
            if self.findings.last(Role.TINY) is None:
                await self._send_tiny()
        else:
            self._progress("who is waited for", 0.9)
            await self._rounds.send(Role.LOOK, [self.findings.shape] * (full + 1), looks=True)

    async def _narrow(self, most: int) -> None:
        """Bisects between what could begin and what could not."""
        while self._has_time_for(most):
            free, full = probed_limit(self.findings.of(Role.PROBE))
            if full is None and free < most:
                await self._probe_beside(most)
            elif full is not None and full - free > 1:
                await self._probe_beside((free + full) // 2)
            else:
                return
            if probed_limit(self.findings.of(Role.PROBE)) == (free, full):
                return

    async def _probe_beside(self, count: int) -> None:
        self._progress(f"a short one beside {count}", 0.75)
        shape = self.findings.shape
        long = Shape(shape.prompt_tokens, _LONG * shape.output_tokens)
        at_s = _PROBE_AT * self._takes_s(count)
        await self._rounds.send(Role.PROBE, [long] * count, short_at_s=at_s)

    def _takes_s(self, count: int) -> float:
        """What one answer takes beside `count` - 1 others, if they all run."""
        near = [it for it in self.findings.of(Role.RAMP) if it.wanted <= count and it.answered]
        first = [min(it.ended_at - it.sent_at for it in round_.answered) for round_ in near]
        return max(first, default=self.findings.single_s or 1.0)

    async def _send_tiny(self) -> None:
        self._progress("one token each", 0.75)
        tiny = Shape(4, 1)
        alone = [await self._rounds.alone(tiny) for _ in range(3)]
        answered = [it.ended_at - it.sent_at for it in alone if it.is_ok]
        self.findings.tiny_s = min(answered) if answered else None
        await self._rounds.send(Role.TINY, [tiny] * _TINY)

    async def _try_again(self, let_in: int) -> None:
        """As many as were let in, again and again; then one after another, to see the pace of what is let
        through."""
        self._progress("again as many as were let in", 0.7)
        tiny = Shape(4, 1)
        for _ in range(_AGAIN):
            await asyncio.sleep(0.05)
            await self._rounds.send(Role.AGAIN, [tiny] * let_in)
        if any(it.refused for it in self.findings.of(Role.AGAIN)):
            self._progress("how many are let through in a second", 0.85)
            await self._rounds.drizzle(tiny)


def _no_model(base: str, models: Answer) -> str:
    at = base + MODELS_PATH
    if 300 <= models.status < 400:
        return f"{at} redirects to {models.headers.get('location', 'nowhere')}: give that address"
    if models.status >= 500:
        return f"{at} answers {models.status} ({shown(models.body)}): it may still be loading its model"
    told = "" if models.status == 200 else f" (status {models.status})"
    return f"{at} names no model{told}: give --model NAME"


def _levels(most: int) -> list[int]:
    levels = []
    count = 1
    while count < most:
        levels.append(count)
        count *= 2
    return [*levels, most]


def _tokens_for(prompt_s: float, per_token_s: float) -> int:
    """So many that an answer takes its time, also beside its prompt, but not too long."""
    wanted_s = min(_LONGEST_S, max(_DECODE_S, 1.5 * prompt_s))
    return max(_LEAST_TOKENS, min(_MOST_TOKENS, round(wanted_s / per_token_s)))


def _came_at_once(stream: Stream) -> bool:
    """A stream that something holds back until it is complete, or no stream at all. HAProxy hands on what
    has come in 200 ms (seen on 2.6), which still shows when an answer began."""
    if not stream.arrivals:
        return True
    moments = {round(at, 3) for at in stream.arrivals}
    span_s = stream.arrivals[-1] - stream.arrivals[0]
    return len(moments) <= 2 and span_s < _AT_ONCE * (stream.ended_at - stream.sent_at)
