"""What to do about a verdict, in words: the setting by its name, its default, what a change would give."""

from gateway.doctor import cost
from gateway.doctor.seen import Engine, Findings
from gateway.doctor.verdict import Kind, Verdict

MORE_SLOTS = 2
"""The gain is told for so many more."""

_KV_SETTINGS = {
    "vllm": "--gpu-memory-utilization, --kv-cache-dtype fp8, a shorter --max-model-len",
    "sglang": "--mem-fraction-static",
    "llamacpp": "-c, which all slots share",
}
_SETTINGS = (
    "--max-num-seqs (vLLM, 256 or 1024 by GPU), --max-running-requests (SGLang), -np (llama.cpp, 4), "
    "OLLAMA_NUM_PARALLEL (Ollama, 1)"
)

_SHORT = {"llamacpp": "-np"}
"""What people write for the setting that the engine's own words spell out."""


def advice(findings: Findings, verdict: Verdict, gain: float | None) -> str:
    """One or two sentences. `gain`: what `MORE_SLOTS` more would add to the aggregate, None if unknown."""
    if verdict.client_bound:
        return (
            f"Nothing can be said of the endpoint: {verdict.why[0]}. Raise the limit of open files (ulimit "
            "-n) or run the doctor elsewhere."
        )
    match verdict.kind:
        case Kind.SLOTS:
            return _slots(findings, verdict, gain)
        case Kind.FRONT:
            return _front(findings, verdict)
        case Kind.KV:
            return _kv(findings, verdict)
        case Kind.RATE:
            return _rate(verdict)
        case Kind.BATCH:
            return _batch(verdict)
        case Kind.NONE:
            return _none(findings, verdict)


def setting_of(engine: Engine | None) -> str:
    """The engine's own name for its cap, with the default; all of them where it is not known which it is."""
    if engine is None or not engine.setting:
        return _SETTINGS
    short = _SHORT.get(engine.kind)
    return f"{short} ({engine.setting})" if short else engine.setting


def _slots(findings: Findings, verdict: Verdict, gain: float | None) -> str:
    assert verdict.limit is not None
    more = f"To run more at once raise {setting_of(findings.engine)}."
    if gain is None:
        why = "one slot alone" if verdict.limit == 1 else "answers in one piece"
        effect = f"What more slots would give cannot be told from {why}."
    elif gain < 0.03:
        effect = f"Two more slots would add little: about {gain:+.0%} to the aggregate by the curve so far."
    else:
        effect = f"Two more slots would give about {gain:+.0%} aggregate, by the curve so far."
    hold = (
        f"Or hold the rest where they can be seen: a gateway that gives it {_count(verdict.limit)} at a time."
    )
    return f"{more} {effect} {hold}"


def _front(findings: Findings, verdict: Verdict) -> str:
    if findings.is_gateway:
        return (
            "That is what a prefix-gateway is for: it holds what its engines have no slots for. `slots` and "
            "`source` in its /api/state tell each engine's cap; run the doctor on the engines themselves."
        )
    if verdict.refuses:
        return (
            f"What is beyond {verdict.limit} is refused, in front of the engine or by a bound of its own: "
            "look for a concurrency limit in a router or proxy (max_parallel_requests, max_conns), then in "
            "the engine."
        )
    return (
        f"Something in front of the engine holds what is beyond {verdict.limit}: look for a connection or "
        "concurrency limit there (HAProxy maxconn, nginx max_conns or worker_connections, a router's "
        "max_parallel_requests, an HTTP client's pool). More slots in the engine would change nothing."
    )


def _kv(findings: Findings, verdict: Verdict) -> str:
    kind = findings.engine.kind if findings.engine else ""
    means = _KV_SETTINGS.get(kind, "more memory for KV, a smaller KV type, a shorter context")
    return (
        f"KV memory holds {verdict.limit} requests of this size ({findings.prompt_tokens} prompt and "
        f"{findings.shape.output_tokens} output tokens), whatever the slots: give it more ({means}), or "
        "send shorter ones. The number moves with their length; --prompt-tokens tries another."
    )


def _rate(verdict: Verdict) -> str:
    rate = verdict.rate_per_s
    does = f"lets about {rate:.2g} requests/s through" if rate else "counts requests in time"
    what = "refuses what comes faster" if verdict.refuses else "delays what comes faster"
    return f"A limiter {does} and {what}: raise it where it is set, or send fewer."


def _batch(verdict: Verdict) -> str:
    return (
        f"It takes batches of {verdict.limit} and begins the next when the longest answer has ended, so "
        "short answers wait for long ones: switch on continuous batching (in-flight batching), or raise the "
        "batch size."
    )


def _none(findings: Findings, verdict: Verdict) -> str:
    known = cost.points(findings.rounds, None)
    if verdict.refuses:
        return "Run it when nobody else uses the endpoint, or with a key of its own."
    if not known:
        return "Run it again and let it come further: more time (--max-seconds), or shorter answers."
    if verdict.in_turn:
        return (
            "Its first tokens come later the more arrive at once: shorter prompts and cached prefixes help, "
            "more slots do not."
        )
    at = cost.saturates_at(known)
    if at is not None:
        rate = next(it.aggregate_tokens_per_s for it in known if it.concurrency == at)
        return (
            f"It saturates at about {at} at once ({rate:.3g} tokens/s): more at once only makes each slower, "
            f"so a cap of {at} would cost nothing."
        )
    last = known[-1]
    option = "--max-concurrency" if verdict.tried >= findings.max_concurrency else "--max-seconds"
    return (
        f"It still gave more at {last.concurrency} at once ({last.aggregate_tokens_per_s:.3g} tokens/s) than "
        f"at fewer: a larger {option} shows where that ends."
    )


def _count(limit: int) -> str:
    return f"{limit} requests" if limit > 1 else "one request"
