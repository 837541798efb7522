"""LMDeploy: its cap cannot be asked for, and its load is ten seconds old."""

from collections.abc import Mapping

from gateway.core.engine import Facts, LoadReport, Probe, SlotSource
from gateway.engines.base import Answer
from gateway.engines.exposition import page_of, total, values
from gateway.engines.plain import TOLD_BY_ITSELF, AskingDialect
from gateway.engines.reading import (
    MODELS_PATH,
    longest_context_tokens,
    member,
    model_cards,
    model_names,
    read_body,
    serving,
)

# `--max-batch-size` of the smallest devices; 256, 384 or 1024 on others (lmdeploy utils.py:394).
ASSUMED_SLOTS = 128
# `--cache-block-seq-len` (lmdeploy messages.py).
ASSUMED_BLOCK_TOKENS = 64


class LmdeployDialect(AskingDialect):
    """Asks for usage on streams; cached tokens are always in it (lmdeploy serve/openai/protocol.py:53).

    Prefix caching is off unless `--enable-prefix-caching` is given (lmdeploy messages.py:324): zero cached
    tokens for ever mean that.
    """

    kind = "lmdeploy"
    cap_setting = "--max-batch-size, default 128 to 1024 by device"
    cached_setting = TOLD_BY_ITSELF
    health_path = "/health"
    facts_paths = (MODELS_PATH,)
    load_path = "/metrics"

    def read_health(self, answer: Answer) -> Probe:
        """A sleeping engine answers 200 here and 503 to requests; awake, its cache is a new one
        (lmdeploy serve/openai/endpoints/management.py:24)."""
        status = member(read_body(answer), "status")
        return Probe.LOADING if status in ("sleeping", "initializing") else serving(answer)

    def read_facts(self, answers: Mapping[str, Answer]) -> Facts:
        """The model names; no answer tells the rest."""
        cards = model_cards(answers)
        return Facts(
            kind=self.kind,
            models=model_names(cards),
            slots=ASSUMED_SLOTS,
            slots_source=SlotSource.ASSUMED,
            block_tokens=ASSUMED_BLOCK_TOKENS,
            max_model_len=longest_context_tokens(cards),
        )

    def read_load(self, answer: Answer, asked_at: float) -> LoadReport | None:
        """KV usage, the fullest of its engines, and the counters of its prefix cache.

        Not what runs: those gauges are refreshed every ten seconds (lmdeploy metrics/loggers.py:149), so
        requests that have ended would be taken for those of somebody else. None with `--disable-metrics`.
        """
        page = page_of(answer)
        report = LoadReport(
            asked_at=asked_at,
            kv_usage=max(values(page, b"lmdeploy:gpu_cache_usage_perc"), default=None),
            prefix_queries_tokens=total(page, b"lmdeploy:prompt_tokens_total"),
            prefix_hits_tokens=total(page, b"lmdeploy:cached_tokens_total"),
        )
        return None if report == LoadReport(asked_at=asked_at) else report
