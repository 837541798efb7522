"""What an engine is, whatever runs on it."""

from enum import IntEnum, StrEnum

from msgspec import Struct


class SlotSource(StrEnum):
    """Where a cap came from. Configured and discovered caps are hard limits, the others are not."""

    CONFIGURED = "configured"
    DISCOVERED = "discovered"
    ASSUMED = "assumed"
    INFERRED = "inferred"

    @property
    def is_soft(self) -> bool:
        """Whether it is a working limit, which may be found to be another."""
        return self is SlotSource.ASSUMED or self is SlotSource.INFERRED


class Residency(StrEnum):
    """How an engine keeps prefixes: a pool of shared KV blocks, or one prefix in each slot."""

    POOL = "pool"
    SLOTS = "slots"


class Billing(IntEnum):
    """What becomes of Claude Code's billing line at the start of a system prompt (`wire/billing.py`): it is
    shown to the model, or with another `cch`, or not at all. In the order of how much prompts share."""

    KEPT = 0
    MASKED = 1
    DROPPED = 2


class Facts(Struct, frozen=True, kw_only=True):
    """What is known of an engine before any load: detected from its URL, then overridden by configuration.

    `slots_declared` is the engine's own number where it tells one, kept beside a configured `slots`.
    `kv_tokens` is None where unknown. `block_tokens` is the engine's KV block; predictions are floored
    to it. `cancel_s` is how long it may go on after its client left, where it cannot be asked.
    `billing` is what becomes of the billing line in `system` of `/v1/messages`, `billing_elsewhere` in other
    APIs' system messages; kept where nothing is known. `tools_first`: its template shows tools before the
    system prompt's text.
    """

    kind: str = "openai"
    models: tuple[str, ...] = ()
    slots: int = 8
    slots_source: SlotSource = SlotSource.ASSUMED
    slots_declared: int | None = None
    kv_tokens: int | None = None
    block_tokens: int = 1
    max_model_len: int | None = None
    residency: Residency = Residency.POOL
    cancel_s: float = 2.0
    billing: Billing = Billing.KEPT
    billing_elsewhere: Billing = Billing.KEPT
    tools_first: bool = False
