"""What one simulated engine is started with."""

from msgspec import Struct

from gateway.sim.model import BATCHINGS, BLOCK_TOKENS, KINDS

# A long-context default that a small KV pool shortens further.
_MAX_MODEL_LEN = 131_072


class SimSettings(Struct, frozen=True, kw_only=True):
    """One simulated engine. `prefill_rate` and `decode_rate` are tokens/s, the second for each answer.

    `speed` runs simulated time that much faster than the wall clock. `faults` are as `parse_faults` reads
    them. `dev` opens vLLM's /server_info, which tells the number of slots; `quiet` closes every path that
    tells of slots or load, and the model list does not say whose it is. `batching`, `jitter` and `seed` are
    the model's. Raises ValueError for values that
    no engine could have.
    """

    host: str = "127.0.0.1"
    port: int = 0
    slots: int = 8
    kv_tokens: int = 131_072
    prefill_rate: float = 4000.0
    decode_rate: float = 40.0
    kind: str = "vllm"
    model: str = "sim-model"
    max_model_len: int | None = None
    dev: bool = False
    faults: tuple[str, ...] = ()
    speed: float = 1.0
    batching: str = "continuous"
    jitter: float = 0.0
    seed: int = 0
    quiet: bool = False

    def __post_init__(self) -> None:
        if self.kind not in KINDS:
            raise ValueError(f"kind must be one of {', '.join(KINDS)}, got {self.kind!r}")
        if self.batching not in BATCHINGS:
            raise ValueError(f"batching must be one of {', '.join(BATCHINGS)}, got {self.batching!r}")
        if not 0 <= self.jitter < 1:
            raise ValueError(f"jitter must be at least 0 and below 1, got {self.jitter}")
        for name in ("slots", "kv_tokens", "prefill_rate", "decode_rate", "speed"):
            if getattr(self, name) <= 0:
                raise ValueError(f"{name} must be above 0, got {getattr(self, name)}")

    @property
    def block_tokens(self) -> int:
        return BLOCK_TOKENS[self.kind]

    @property
    def context_tokens(self) -> int:
        """The longest prompt and answer. llama.cpp splits its KV evenly among the slots (no unified KV)."""
        room_tokens = self.kv_tokens // self.slots if self.kind == "llamacpp" else self.kv_tokens
        return min(self.max_model_len or _MAX_MODEL_LEN, room_tokens)
