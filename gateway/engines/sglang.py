"""SGLang: `/v1/loads` tells its cap, its load and its KV size, without any flag."""

from collections.abc import Mapping

from gateway.core.engine import Facts, LoadReport, SlotSource
from gateway.engines.base import Answer
from gateway.engines.plain import AskingDialect
from gateway.engines.reading import (
    MODELS_PATH,
    amount,
    count,
    longest_context_tokens,
    member,
    model_cards,
    model_names,
    objects,
    read_json,
    share,
    summed,
)

# Where neither route tells (versions without them). The default is 2048 and more, but what really runs
# is bounded by the KV size (sglang mem_cache/kv_cache_configurator.py:1935), so nothing is known.
ASSUMED_SLOTS = 8
# `--page-size` (sglang server_args.py).
ASSUMED_BLOCK_TOKENS = 1

# Always on; "core" leaves out what is not read (sglang entrypoints/v1_loads.py).
LOADS_PATH = "/v1/loads?include=core"
SERVER_INFO_PATH = "/server_info"


class SglangDialect(AskingDialect):
    """Asks for usage on streams. What it reports of cached tokens is null at zero: unknown, not zero
    (sglang entrypoints/openai/usage_processor.py:15, sgl-project/sglang#28801).

    Health is that of the model list. `/health` generates a token and takes a second or more, twenty in a
    long prefill (sglang entrypoints/http_server.py:654, sgl-project/sglang#22511). The price: an engine in
    its warm-up counts as ready (gpustack/gpustack#6203), and one that drains after a SIGTERM too.
    """

    kind = "sglang"
    cap_setting = "--max-running-requests"
    cached_setting = "start it with --enable-cache-report; it then tells only what is above zero"
    health_path = MODELS_PATH
    facts_paths = (MODELS_PATH, LOADS_PATH, SERVER_INFO_PATH)
    load_path = LOADS_PATH

    def read_facts(self, answers: Mapping[str, Answer]) -> Facts:
        """Cap and KV size are those of each data-parallel rank, so they are added up.

        The cap is the engine's own and a hard one, but seldom the narrowest: where the KV memory holds
        fewer sequences, the rest waits in the engine, seen in its load report only.
        """
        cards = model_cards(answers)
        ranks = _ranks(answers.get(LOADS_PATH))
        info = read_json(answers.get(SERVER_INFO_PATH))
        states = objects(member(info, "internal_states"))
        # Zero until the scheduler has written its first snapshot (sglang managers/load_snapshot.py).
        cap = summed(count(rank.get("max_running_requests")) for rank in ranks) or summed(
            count(state.get("effective_max_running_requests_per_dp")) for state in states
        )
        return Facts(
            kind=self.kind,
            models=model_names(cards),
            slots=cap or ASSUMED_SLOTS,
            slots_source=SlotSource.DISCOVERED if cap else SlotSource.ASSUMED,
            slots_declared=cap,
            kv_tokens=summed(count(rank.get("max_total_num_tokens")) for rank in ranks),
            block_tokens=count(member(info, "page_size")) or ASSUMED_BLOCK_TOKENS,
            max_model_len=longest_context_tokens(cards),
        )

    def read_load(self, answer: Answer, asked_at: float) -> LoadReport | None:
        """Sums over the ranks, and the fullest of their KV pools; None where any rank's cannot be read.

        A snapshot is written with each prefill, when idle, and every 15 decode steps
        (`--load-snapshot-publish-interval`, sglang server_args.py:1596): what ended may still be in it.
        """
        ranks = _ranks(answer)
        running = summed(amount(rank.get("num_running_reqs")) for rank in ranks)
        waiting = summed(amount(rank.get("num_waiting_reqs")) for rank in ranks)
        if running is None or waiting is None:
            return None
        usages = [usage for rank in ranks if (usage := share(rank.get("token_usage"))) is not None]
        return LoadReport(
            asked_at=asked_at, running=running, waiting=waiting, kv_usage=max(usages, default=None)
        )


def _ranks(answer: Answer | None) -> list[dict[str, object]]:
    return objects(member(read_json(answer), "loads"))
