"""vLLM: cap hidden outside dev mode, everything else on `/metrics`, usage on streams only when asked for."""

import re
from collections.abc import Mapping

from gateway.core.engine import Facts, LoadReport, SlotSource
from gateway.engines.base import Answer
from gateway.engines.exposition import labels, page_of, samples, total, values, whole
from gateway.engines.plain import AskingDialect
from gateway.engines.reading import (
    MODELS_PATH,
    count,
    longest_context_tokens,
    member,
    model_cards,
    model_names,
    read_json,
)

# `--max-num-seqs` where nothing is known: the default of most GPUs; 1024 on those of 70 GiB and more
# (vLLM engine/arg_utils.py get_batch_defaults).
ASSUMED_SLOTS = 256
# `--block-size` where the engine does not tell (vLLM config/cache.py).
ASSUMED_BLOCK_TOKENS = 16
# Seen on 0.32.0: 0.1 s in a decode and 0.4 s in a prefill from the client's close to an idle engine.
CANCEL_S = 1.0

_METRICS_PATH = "/metrics"
_SERVER_INFO_PATH = "/server_info?config_format=json"

_DIGITS = re.compile("[0-9]{1,18}")
_RUNNING = b"vllm:num_requests_running"
_WAITING = b"vllm:num_requests_waiting"
_KV_USAGE = (b"vllm:kv_cache_usage_perc", b"vllm:gpu_cache_usage_perc")
_QUERIES = (b"vllm:prefix_cache_queries_total", b"vllm:gpu_prefix_cache_queries_total")
_HITS = (b"vllm:prefix_cache_hits_total", b"vllm:gpu_prefix_cache_hits_total")


class VllmDialect(AskingDialect):
    """Asks for usage on streams. 503 from `/health` means that the engine core is dead; a vLLM that loads
    its model refuses connections."""

    kind = "vllm"
    cap_setting = "--max-num-seqs, default 256"
    cached_setting = "start it with --enable-prompt-tokens-details"
    health_path = "/health"
    facts_paths = (MODELS_PATH, _METRICS_PATH, _SERVER_INFO_PATH)
    load_path = _METRICS_PATH

    def read_facts(self, answers: Mapping[str, Answer]) -> Facts:
        """Caps and pools are those of each engine core, so data parallelism multiplies them.

        `/server_info` exists only with `VLLM_SERVER_DEV_MODE=1`; without it the cap is assumed.
        """
        page = page_of(answers.get(_METRICS_PATH))
        cores = len({labels(sample).get("engine") for sample in samples(page, _RUNNING)}) or 1
        info = read_json(answers.get(_SERVER_INFO_PATH))
        sequences = count(member(info, "vllm_config", "scheduler_config", "max_num_seqs"))
        caches = [labels(sample) for sample in samples(page, b"vllm:cache_config_info")]
        cards = model_cards(answers)
        return Facts(
            kind=self.kind,
            models=model_names(cards),
            slots=cores * (sequences or ASSUMED_SLOTS),
            slots_source=SlotSource.DISCOVERED if sequences else SlotSource.ASSUMED,
            slots_declared=cores * sequences if sequences else None,
            kv_tokens=_kv_tokens(caches),
            block_tokens=next(filter(None, map(_block_tokens, caches)), ASSUMED_BLOCK_TOKENS),
            max_model_len=longest_context_tokens(cards),
            cancel_s=CANCEL_S,
        )

    def read_load(self, answer: Answer, asked_at: float) -> LoadReport | None:
        """Sums over the engine cores, and the fullest of their KV caches.

        None where the page has none of it. With `--disable-log-stats` only the start time is left, and
        with several API servers (PROMETHEUS_MULTIPROC_DIR) it is the start time that is missing.
        """
        page = page_of(answer)
        report = LoadReport(
            asked_at=asked_at,
            running=whole(total(page, _RUNNING)),
            waiting=whole(total(page, _WAITING)),
            kv_usage=max(values(page, *_KV_USAGE), default=None),
            started_at=total(page, b"process_start_time_seconds"),
            prefix_queries_tokens=total(page, *_QUERIES),
            prefix_hits_tokens=total(page, *_HITS),
        )
        return None if report == LoadReport(asked_at=asked_at) else report


def _number(cache: Mapping[str, str], label: str) -> int | None:
    """A label of `cache_config_info`; they are Python's str() of the setting, so "None" is one of them."""
    text = cache.get(label, "")
    return count(int(text)) if _DIGITS.fullmatch(text) else None


def _block_tokens(cache: Mapping[str, str]) -> int | None:
    return _number(cache, "block_size")


def _kv_tokens(caches: list[dict[str, str]]) -> int | None:
    """The pools of all engine cores together; None unless every one is known."""
    pools = [_pool_tokens(cache) for cache in caches]
    known = [tokens for tokens in pools if tokens]
    return sum(known) if known and len(known) == len(pools) else None


def _pool_tokens(cache: Mapping[str, str]) -> int | None:
    """`kv_cache_size_tokens`, which older versions do not have: there all blocks are of one size."""
    blocks, block_tokens = _number(cache, "num_gpu_blocks"), _block_tokens(cache)
    product = blocks * block_tokens if blocks and block_tokens else None
    return _number(cache, "kv_cache_size_tokens") or product
