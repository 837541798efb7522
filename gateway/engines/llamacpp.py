"""llama.cpp's llama-server: it tells its slots and what runs in each, and keeps one prefix per slot."""

from collections.abc import Mapping

from gateway.core.call import Call, Prepared
from gateway.core.engine import Facts, LoadReport, Probe, Residency, SlotSource
from gateway.engines.base import Answer
from gateway.engines.plain import TOLD_BY_ITSELF, PlainDialect
from gateway.engines.reading import MODELS_PATH, count, member, model_cards, model_names, read_json, serving

PROPS_PATH = "/props"
# `--parallel` left alone means four slots (llama.cpp tools/server/server.cpp).
ASSUMED_SLOTS = 4
# The last resort: after its client left, a prefill runs to its end, 18 to 31 s seen at 180 tokens/s on
# build 10434, but /slots tells when the slot is free.
CANCEL_S = 60.0
# A request that carries it goes on generating after its client left (ggml-org/llama.cpp#23226).
_STRIPPED = b"x-conversation-id"


class LlamaCppDialect(PlainDialect):
    """Never asks for usage: `timings` come with every answer."""

    kind = "llamacpp"
    cap_setting = "--parallel, default 4"
    cached_setting = TOLD_BY_ITSELF
    # Not /health: this answers as fast, is 503 while loading too, and shows which process answers.
    health_path = PROPS_PATH
    facts_paths = (MODELS_PATH, PROPS_PATH)
    # Not /metrics: each read of it resets two gauges that an operator may watch, it is off by default,
    # and /slots answers during a prefill.
    load_path = "/slots"

    def read_health(self, answer: Answer) -> Probe:
        """Every path answers 503 "Loading model" until the model is there."""
        if answer.status == 503 and b"Loading model" in answer.body:
            return Probe.LOADING
        return serving(answer)

    def read_identity(self, answer: Answer) -> str | None:
        """The media marker is random in each process (ggml-org/llama.cpp#21962), unless it was pinned."""
        marker = member(read_json(answer), "media_marker")
        return marker if isinstance(marker, str) else None

    def read_facts(self, answers: Mapping[str, Answer]) -> Facts:
        """Slots from /props. `kv_tokens` is what the slots can hold by their own limits.

        With unified KV (`-kvu`, the default where `--parallel` is) the slots share one pool of a single
        slot's size, which no answer tells: there it is an upper bound (build 10434 with `-c 2048` alone
        shows four slots of 2048).
        """
        props = read_json(answers.get(PROPS_PATH))
        declared = count(member(props, "total_slots"))
        slots = declared or ASSUMED_SLOTS
        context_tokens = count(member(props, "default_generation_settings", "n_ctx"))
        return Facts(
            kind=self.kind,
            models=model_names(model_cards(answers)),
            slots=slots,
            slots_source=SlotSource.DISCOVERED if declared else SlotSource.ASSUMED,
            slots_declared=declared,
            kv_tokens=slots * context_tokens if declared and context_tokens else None,
            max_model_len=context_tokens,
            residency=Residency.SLOTS,
            cancel_s=CANCEL_S,
        )

    def read_load(self, answer: Answer, asked_at: float) -> LoadReport | None:
        """How many slots work. What waits behind them is not told here, nor when the process started.

        None with `--no-slots` (501), and where any slot's state cannot be read.
        """
        slots = read_json(answer)
        if not isinstance(slots, list) or not slots:
            return None
        states = [member(slot, "is_processing") for slot in slots]
        if not all(isinstance(state, bool) for state in states):
            return None
        return LoadReport(asked_at=asked_at, running=states.count(True))

    def prepare(self, call: Call) -> Prepared:
        """The body as it is, without the header that would keep a slot busy after a disconnect."""
        headers = tuple(header for header in call.headers if header[0] != _STRIPPED)
        return Prepared(path=call.path, headers=headers, body=call.body)
