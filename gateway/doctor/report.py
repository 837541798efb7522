"""An examination as one value: what `--json` prints, and what the text and the page are made of."""

from typing import Any

from gateway.doctor import advice, cost
from gateway.doctor.overlap import running_at_once
from gateway.doctor.seen import Findings, Role, Round
from gateway.doctor.verdict import Kind, Verdict, conclude

Json = dict[str, Any]


class Report:
    """`round_shown` is the round to draw: of equal requests, the one that shows the limit best. `gain`: what
    two more slots would add to the aggregate, as a share; None where slots are not the limit or it cannot be
    told."""

    def __init__(self, findings: Findings, min_stream_rate: float | None = None) -> None:
        self.findings = findings
        self.verdict: Verdict = conclude(findings)
        limit = self.verdict.limit
        self.points = cost.points(findings.rounds, limit)
        self.line = cost.fit(self.points, limit)
        self.min_stream_rate = min_stream_rate
        self._ramp = [it for it in findings.of(Role.RAMP) if it.answered]
        self.last: Round | None = self._ramp[-1] if self._ramp else None
        self.gain: float | None = None
        if limit is not None and self.verdict.kind is Kind.SLOTS:
            self.gain = cost.gain(self.line, limit, advice.MORE_SLOTS)
        self.waiting_share = self._waiting_share()
        self.most_slots = (
            cost.most_slots(self.points, self.line, limit, min_stream_rate) if min_stream_rate else None
        )
        self.advice = advice.advice(findings, self.verdict, self.gain)

    @property
    def round_shown(self) -> Round | None:
        limit = self.verdict.limit
        if limit is None:
            return self.last
        return next((it for it in self._ramp if it.wanted >= 3 * limit), self.last)

    def _waiting_share(self) -> float | None:
        if self.last is None or self.verdict.kind is Kind.RATE:
            return None
        if self.verdict.limit is None:
            return 0.0
        return cost.waiting_share(self.last, self.verdict.limit)

    def headline(self) -> str:
        verdict, findings = self.verdict, self.findings
        sure = f"confidence {verdict.confidence:.0%}"
        if verdict.client_bound:
            return "The doctor's own client is the limit here."
        if verdict.kind is Kind.RATE:
            pace = f" of about {verdict.rate_per_s:.2g} requests/s" if verdict.rate_per_s else ""
            return f"A rate limit{pace} ({sure})."
        if verdict.limit is None:
            return self._headline_without_limit(sure)
        what = {
            Kind.SLOTS: "that many slots in the engine",
            Kind.FRONT: "held by a layer in front of the engine",
            Kind.KV: "held by KV memory, not by slots",
            Kind.BATCH: "in static batches",
        }[verdict.kind]
        kind = f" {findings.engine.kind}" if findings.engine and findings.engine.kind != "openai" else ""
        where = f" (engine:{kind})" if kind else ""
        return f"{verdict.limit} of {verdict.tried} requests run at once: {what} ({sure}){where}."

    def _headline_without_limit(self, sure: str) -> str:
        if self.verdict.refuses:
            return "Even a request alone was refused."
        if not self.points:
            return "Nothing was measured."
        tried = "one request" if self.verdict.tried == 1 else f"{self.verdict.tried} requests"
        return f"No limit found up to {tried} at once ({sure})."

    def cost_sentence(self) -> str:
        """What the limit costs; empty where there is none or it cannot be told."""
        share, last, limit = self.waiting_share, self.last, self.verdict.limit
        if not share or last is None or limit is None:
            return ""
        of = "TTFT" if last.streamed else "the time to the answer"
        said = f"{share:.0%} of {of} at {last.wanted} streams is waiting behind a cap of {limit}"
        if self.gain is not None:
            said += f"; two more slots would give about {self.gain:+.0%} aggregate"
        return said + "."

    def rate_sentence(self) -> str:
        """The answer to --min-stream-rate; empty if it was not asked."""
        rate = self.min_stream_rate
        if rate is None:
            return ""
        if self.most_slots is None:
            return f"Whether each stream keeps {rate:g} tokens/s cannot be told: no first tokens were seen."
        if self.most_slots == 0:
            return f"Not even one stream gets {rate:g} tokens/s."
        measured = max((it.concurrency for it in self.points), default=0)
        top = min(measured, self.verdict.limit or measured)
        guess = ", beyond what was measured" if self.most_slots > top else ""
        return f"At most {self.most_slots} slots keep {rate:g} tokens/s for each stream{guess}."

    def as_json(self) -> Json:
        findings, verdict = self.findings, self.verdict
        return {
            "url": findings.url,
            "model": findings.model,
            "concurrency_limit": verdict.limit,
            "limit_kind": verdict.kind.value,
            "confidence": round(verdict.confidence, 3),
            "max_concurrency_tried": verdict.tried,
            "rate_per_second": _rounded(verdict.rate_per_s),
            "refuses": verdict.refuses,
            "aggregate_tokens_per_second": {
                str(it.concurrency): round(it.aggregate_tokens_per_s, 2) for it in self.points
            },
            "stream_tokens_per_second": {
                str(it.concurrency): _rounded(it.stream_tokens_per_s) for it in self.points
            },
            "ttft_ms": {
                str(it.concurrency): {"p50": _ms(it.ttft_p50_s), "max": _ms(it.ttft_max_s)}
                for it in self.points
            },
            "answer_ms": {
                str(it.concurrency): {"p50": _ms(it.answer_p50_s), "max": _ms(it.answer_max_s)}
                for it in self.points
            },
            "waiting_share": _rounded(self.waiting_share, 3),
            "waiting_share_at": self.last.wanted if self.last else None,
            "gain_of_two_more_slots": _rounded(self.gain, 3),
            "min_stream_rate": self.min_stream_rate,
            "slots_for_min_stream_rate": self.most_slots,
            "advice": self.advice,
            "evidence": list(verdict.why),
            "engine": _engine(findings),
            "request": {
                "prompt_tokens": findings.prompt_tokens,
                "output_tokens": findings.shape.output_tokens,
                "streams": bool(self.last and self.last.streamed),
            },
            "rounds": [
                {
                    "role": it.role.value,
                    "sent": it.wanted,
                    "at_once": running_at_once(it),
                    "refused": len(it.refused),
                    "failed": sum(not s.is_ok and not s.is_refused for s in it.streams),
                    "own_lag_ms": _ms(it.lag_s),
                }
                for it in findings.rounds
            ],
            "client_streams": findings.client_streams,
            "interrupted": findings.interrupted or None,
        }


def _engine(findings: Findings) -> Json | None:
    engine = findings.engine
    if engine is None:
        return None
    return {
        "kind": engine.kind,
        "setting": engine.setting or None,
        "declared_slots": engine.slots,
        "kv_tokens": engine.kv_tokens,
        "asked_directly": engine.direct,
    }


def _rounded(value: float | None, digits: int = 2) -> float | None:
    return None if value is None else round(value, digits)


def _ms(value_s: float | None) -> float | None:
    return None if value_s is None else round(value_s * 1000, 1)
