"""What each engine kind tells about itself: metrics, properties, model list. Pure functions of its state."""

from collections.abc import Mapping
from typing import Any

from gateway.sim.model import SimModel
from gateway.sim.settings import SimSettings

Json = Any
VLLM_VERSION = "0.32.0"
_QUIET_OWNER = "sim"


def metrics_text(settings: SimSettings, model: SimModel, started_at: float) -> str:
    """GET /metrics in this kind's names. `started_at` is Unix time in seconds."""
    lines = {"vllm": _vllm, "sglang": _sglang, "llamacpp": _llamacpp}[settings.kind](settings, model)
    if settings.kind == "vllm":
        lines.append(f"process_start_time_seconds {started_at!r}")
    return "\n".join(lines) + "\n"


def model_list(settings: SimSettings, created: int) -> Json:
    name, limit = settings.model, settings.context_tokens
    # The owner alone would tell the kind, and with the kind what to ask.
    owner = _QUIET_OWNER if settings.quiet else settings.kind
    card: dict[str, Json] = {"id": name, "object": "model", "created": created, "owned_by": owner}
    if settings.kind == "llamacpp":
        card["meta"] = {"n_ctx": limit, "n_ctx_train": limit}
        about = {"name": name, "model": name, "type": "model", "capabilities": ["completion"]}
        return {"models": [about], "object": "list", "data": [card]}
    card |= {"root": name, "parent": None, "max_model_len": limit}
    return {"object": "list", "data": [card]}


def llamacpp_props(settings: SimSettings, media_marker: str) -> Json:
    return {
        "default_generation_settings": {"n_ctx": settings.context_tokens},
        "total_slots": settings.slots,
        "model_alias": settings.model,
        "model_path": f"{settings.model}.gguf",
        "media_marker": media_marker,
        "build_info": "b10434-sim",
        "is_sleeping": False,
    }


def llamacpp_slots(settings: SimSettings, model: SimModel) -> Json:
    busy = {view.slot: view for view in model.slot_views()}
    slots = []
    for number in range(settings.slots):
        slot: dict[str, Json] = {
            "id": number,
            "n_ctx": settings.context_tokens,
            "is_processing": number in busy,
        }
        if number in busy:
            view = busy[number]
            slot["id_task"] = view.job_id
            slot["n_prompt_tokens"] = view.prompt_tokens
            slot["n_prompt_tokens_processed"] = view.processed_tokens - view.cached_tokens
            slot["n_prompt_tokens_cache"] = view.cached_tokens
            slot["next_token"] = [{"has_next_token": True, "n_decoded": view.decoded_tokens}]
        slots.append(slot)
    return slots


def sglang_loads(settings: SimSettings, model: SimModel, now: float) -> Json:
    used = int(model.kv_usage * settings.kv_tokens)
    counts = model.counts
    load = {
        "timestamp": now,
        "dp_rank": 0,
        "num_running_reqs": model.running,
        "num_waiting_reqs": model.waiting,
        "num_used_tokens": used,
        "num_total_tokens": used,
        "max_total_num_tokens": settings.kv_tokens,
        "max_running_requests": settings.slots,
        "token_usage": round(model.kv_usage, 4),
        "cache_hit_rate": counts.cached_tokens / counts.prompt_tokens if counts.prompt_tokens else 0.0,
    }
    return {"timestamp": now, "version": "0.5.18", "num_accelerators": 1, "loads": [load]}


def sglang_server_info(settings: SimSettings) -> Json:
    return {
        "version": "0.5.18",
        "served_model_name": settings.model,
        "page_size": settings.block_tokens,
        "max_running_requests": settings.slots,
        "max_total_num_tokens": settings.kv_tokens,
        "context_length": settings.context_tokens,
        "kv_events": None,
        "internal_states": [{"effective_max_running_requests_per_dp": settings.slots}],
    }


def vllm_server_info(settings: SimSettings) -> Json:
    blocks = settings.kv_tokens // settings.block_tokens
    cache = {"block_size": settings.block_tokens, "num_gpu_blocks": blocks}
    cache["kv_cache_size_tokens"] = blocks * settings.block_tokens
    scheduler = {"max_num_seqs": settings.slots, "max_num_batched_tokens": 2048, "policy": "fcfs"}
    return {"vllm_config": {"scheduler_config": scheduler, "cache_config": cache}}


def _vllm(settings: SimSettings, model: SimModel) -> list[str]:
    counts = model.counts
    labels = {"engine": "0", "model_name": settings.model}
    blocks = settings.kv_tokens // settings.block_tokens
    cache_config = {
        "block_size": str(settings.block_tokens),
        "enable_prefix_caching": "True",
        "engine": "0",
        "kv_cache_size_tokens": str(blocks * settings.block_tokens),
        "num_gpu_blocks": str(blocks),
    }
    waiting = model.waiting
    return [
        *_metric("vllm:num_requests_running", "gauge", labels, model.running),
        *_metric("vllm:num_requests_waiting", "gauge", labels, waiting),
        *_metric("vllm:num_requests_waiting_by_reason", "gauge", {**labels, "reason": "capacity"}, waiting),
        *_metric("vllm:kv_cache_usage_perc", "gauge", labels, model.kv_usage),
        *_metric("vllm:prefix_cache_queries_total", "counter", labels, counts.prompt_tokens),
        *_metric("vllm:prefix_cache_hits_total", "counter", labels, counts.cached_tokens),
        *_metric("vllm:prompt_tokens_total", "counter", labels, counts.prompt_tokens),
        *_metric("vllm:prompt_tokens_cached_total", "counter", labels, counts.cached_tokens),
        *_metric("vllm:generation_tokens_total", "counter", labels, counts.generated_tokens),
        *_metric(
            "vllm:request_success_total", "counter", {**labels, "finished_reason": "length"}, counts.finished
        ),
        *_metric("vllm:cache_config_info", "gauge", cache_config, 1),
    ]


def _sglang(settings: SimSettings, model: SimModel) -> list[str]:
    counts = model.counts
    labels = {"model_name": settings.model}
    rank = {"engine_type": "unified", "model_name": settings.model, "pp_rank": "0", "tp_rank": "0"}
    device = {**labels, "cache_source": "device"}
    return [
        *_metric("sglang:num_running_reqs", "gauge", rank, model.running),
        *_metric("sglang:num_queue_reqs", "gauge", rank, model.waiting),
        *_metric("sglang:token_usage", "gauge", rank, model.kv_usage),
        *_metric("sglang:num_used_tokens", "gauge", rank, int(model.kv_usage * settings.kv_tokens)),
        *_metric("sglang:max_total_num_tokens", "gauge", rank, settings.kv_tokens),
        *_metric("sglang:page_size", "gauge", rank, settings.block_tokens),
        *_metric("sglang:prompt_tokens_total", "counter", labels, counts.prompt_tokens),
        *_metric("sglang:generation_tokens_total", "counter", labels, counts.generated_tokens),
        *_metric("sglang:cached_tokens_total", "counter", device, counts.cached_tokens),
        *_metric("sglang:num_requests_total", "counter", labels, counts.requests),
        *_metric("sglang:num_aborted_requests_total", "counter", labels, counts.cancelled),
    ]


def _llamacpp(settings: SimSettings, model: SimModel) -> list[str]:
    counts = model.counts
    evaluated = counts.prompt_tokens - counts.cached_tokens
    return [
        *_metric("llamacpp:prompt_tokens_total", "counter", {}, evaluated),
        *_metric("llamacpp:prompt_tokens_cached_total", "counter", {}, counts.cached_tokens),
        *_metric("llamacpp:prompt_seconds_total", "counter", {}, counts.prefill_s),
        *_metric("llamacpp:tokens_predicted_total", "counter", {}, counts.generated_tokens),
        *_metric("llamacpp:tokens_predicted_seconds_total", "counter", {}, counts.decode_s),
        *_metric("llamacpp:requests_processing", "gauge", {}, model.running),
        *_metric("llamacpp:requests_deferred", "gauge", {}, model.waiting),
    ]


def _metric(name: str, kind: str, labels: Mapping[str, str], value: float) -> tuple[str, str]:
    written = ",".join(f'{key}="{_escaped(text)}"' for key, text in labels.items())
    return f"# TYPE {name} {kind}", f"{name}{{{written}}} {value}" if written else f"{name} {value}"


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
