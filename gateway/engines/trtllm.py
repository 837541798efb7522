"""TensorRT-LLM's trtllm-serve: figures only with `return_perf_metrics`, and only after a first request.

The evidence is weaker than for the others: single files of its main branch in 2026.
"""

from collections.abc import Mapping

from gateway.core.engine import Facts, LoadReport, SlotSource
from gateway.engines.base import Answer
from gateway.engines.exposition import page_of, total, values, whole
from gateway.engines.plain import TOLD_BY_ITSELF, AskingDialect
from gateway.engines.reading import MODELS_PATH, count, longest_context_tokens, model_cards, model_names

# Not /metrics: that is JSON, and each read of it takes the iteration statistics away from whoever else
# wants them (TensorRT-LLM serve/openai_server.py).
METRICS_PATH = "/prometheus/metrics"
# No default of `--max_batch_size` could be verified (2048, 256 and 8 are all told).
ASSUMED_SLOTS = 8
# `tokens_per_block` (TensorRT-LLM docs, kvcache.md).
ASSUMED_BLOCK_TOKENS = 32

_CAPS = (
    b"trtllm_max_num_active_requests",
    b"trtllm_max_batch_size_runtime",
    b"trtllm_max_batch_size_static",
)


class TrtllmDialect(AskingDialect):
    """Asks for usage on streams; cached tokens are always in it (TensorRT-LLM
    serve/postprocess_handlers.py). It looks for clients that left once a second."""

    kind = "trtllm"
    cap_setting = "--max_batch_size"
    cached_setting = TOLD_BY_ITSELF
    health_path = "/health"
    facts_paths = (MODELS_PATH, METRICS_PATH)
    load_path = METRICS_PATH

    def read_facts(self, answers: Mapping[str, Answer]) -> Facts:
        """Cap and KV size of a server that has answered a request; a fresh one tells neither
        (TensorRT-LLM metrics/collector.py)."""
        cards = model_cards(answers)
        page = page_of(answers.get(METRICS_PATH))
        cap = _count(page, *_CAPS)
        block_tokens = _count(page, b"trtllm_kv_cache_tokens_per_block")
        blocks = _count(page, b"trtllm_kv_cache_max_blocks")
        return Facts(
            kind=self.kind,
            models=model_names(cards),
            slots=cap or ASSUMED_SLOTS,
            slots_source=SlotSource.DISCOVERED if cap else SlotSource.ASSUMED,
            slots_declared=cap,
            kv_tokens=blocks * block_tokens if blocks and block_tokens else None,
            block_tokens=block_tokens or ASSUMED_BLOCK_TOKENS,
            max_model_len=longest_context_tokens(cards),
        )

    def read_load(self, answer: Answer, asked_at: float) -> LoadReport | None:
        """KV usage and the counters of the prefix cache.

        Not what runs: the gauges change only when a request ends (TensorRT-LLM serve/openai_server.py), so
        a long silence would keep the last of them for ever, as somebody else's. None without
        `return_perf_metrics` (404).
        """
        page = page_of(answer)
        report = LoadReport(
            asked_at=asked_at,
            kv_usage=max(values(page, b"trtllm_kv_cache_utilization"), default=None),
            prefix_queries_tokens=total(page, b"trtllm_prompt_tokens_total"),
            prefix_hits_tokens=total(page, b"trtllm_prompt_cached_tokens_total"),
        )
        return None if report == LoadReport(asked_at=asked_at) else report


def _count(page: bytes, *names: bytes) -> int | None:
    """The first of `names` that holds a number of at least one: a gauge that was never set is zero."""
    return next(filter(None, (count(whole(total(page, name))) for name in names)), None)
