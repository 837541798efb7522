"""Text Generation Inference: `/info` tells a cap that counts what waits inside it, too."""

from collections.abc import Mapping

from gateway.core.engine import Facts, LoadReport, SlotSource
from gateway.engines.base import Answer
from gateway.engines.exposition import page_of, total, whole
from gateway.engines.plain import PlainDialect
from gateway.engines.reading import MODELS_PATH, count, member, model_cards, model_names, read_json

INFO_PATH = "/info"
_METRICS_PATH = "/metrics"
# `--max-concurrent-requests` (text-generation-inference launcher/src/main.rs:649).
ASSUMED_SLOTS = 128


def is_tgi(answer: Answer | None) -> bool:
    """Whether `answer` is TGI's to `INFO_PATH` (router/src/server.rs:2240). Text Embeddings Inference has
    the same cap in its own, but no limit of a whole request."""
    info = read_json(answer)
    return None not in (_cap(info), count(member(info, "max_total_tokens")))


class TgiDialect(PlainDialect):
    """Usage is not asked for: there are no cached tokens in it.

    Slots are `max_concurrent_requests`, running and queued together (router/src/infer/mod.rs:112). Within
    them nothing is refused, and with requests of others counted in, the sum stays within them. But how many
    run at once depends on their token budgets (`max_batch_total_tokens`), so some of them may wait in the
    engine, seen as `waiting` only; a configured `slots` of what the batch takes keeps them in the gateway.
    """

    kind = "tgi"
    cap_setting = "--max-concurrent-requests, default 128, or less"
    cached_setting = "TGI never tells cached tokens"
    health_path = "/health"
    facts_paths = (MODELS_PATH, INFO_PATH, _METRICS_PATH)
    load_path = _METRICS_PATH

    def read_facts(self, answers: Mapping[str, Answer]) -> Facts:
        """`kv_tokens` is the token budget of a batch, which is set from the free memory at the start
        (text-generation-inference backends/v3/src/lib.rs)."""
        info = read_json(answers.get(INFO_PATH))
        cap = _cap(info)
        page = page_of(answers.get(_METRICS_PATH))
        return Facts(
            kind=self.kind,
            models=model_names(model_cards(answers)),
            slots=cap or ASSUMED_SLOTS,
            slots_source=SlotSource.DISCOVERED if cap else SlotSource.ASSUMED,
            slots_declared=cap,
            kv_tokens=count(whole(total(page, b"tgi_batch_max_total_tokens"))),
            max_model_len=count(member(info, "max_total_tokens")),
        )

    def read_load(self, answer: Answer, asked_at: float) -> LoadReport | None:
        """The batch and what is queued behind it; None before the first request has set both."""
        page = page_of(answer)
        running = whole(total(page, b"tgi_batch_current_size"))
        waiting = whole(total(page, b"tgi_queue_size"))
        if running is None or waiting is None:
            return None
        return LoadReport(asked_at=asked_at, running=running, waiting=waiting)


def _cap(info: object) -> int | None:
    return count(member(info, "max_concurrent_requests"))
