"""What a replay plays: sessions of turns with the prefix structure of a recorded trace."""

from msgspec import Struct


class Turn(Struct, frozen=True, kw_only=True):
    """One request of a session.

    `blocks` are ids of the prompt's full blocks of `Workload.block_tokens` tokens each, chained: an equal id
    at one place means an equal prompt up to there. `think_s` passes between the answer to the turn before
    and this one; `at_s` is when the trace recorded it, from the start of the trace.
    """

    prompt_tokens: int
    output_tokens: int
    blocks: tuple[int, ...]
    think_s: float = 0.0
    at_s: float = 0.0


class Session(Struct, frozen=True, kw_only=True):
    """Turns of one conversation, each sent after the answer to the one before.

    The first `shared_blocks` block ids of every turn are the same whenever and by whomever the session is
    played (tool definitions, a system prompt); the others are new for each play.
    """

    turns: tuple[Turn, ...]
    shared_blocks: int = 0


class Workload(Struct, frozen=True, kw_only=True):
    name: str
    block_tokens: int
    sessions: tuple[Session, ...]


class Ask(Struct, frozen=True, kw_only=True):
    """One request as it arrives at a router. `key` is unique in a run; `session` names the play of a
    session. `output_tokens` is for the engine only: no router knows it before the answer has ended."""

    key: int
    session: int
    prompt_tokens: int
    output_tokens: int
    blocks: tuple[int, ...]
    arrived_s: float


class EngineSpec(Struct, frozen=True, kw_only=True):
    """One simulated engine. `kv_tokens` is what its cache really holds, `declared_kv_tokens` what it tells
    (None: the same). One step takes up to `step_tokens` of prompts at `prefill_tokens_per_s` and `decode_s`
    if anything decodes. At each of `restarts_s` it dies with all it runs and is back after `down_s`.
    `shares_pending`: a prompt finds what another one that has begun is still computing (vLLM)."""

    slots: int = 8
    kv_tokens: int = 500_000
    declared_kv_tokens: int | None = None
    prefill_tokens_per_s: float = 10_000.0
    decode_s: float = 0.025
    step_tokens: int = 2048
    restarts_s: tuple[float, ...] = ()
    down_s: float = 20.0
    shares_pending: bool = False


class Done(Struct, frozen=True, kw_only=True):
    """What became of one request; times in seconds of virtual time.

    `cached_tokens` is what the engine really took from its cache, `best_tokens` the most that any engine held
    when the request arrived, `seen_tokens` what a single cache without limit would have held.
    `first_token_s` and `finished_s` are None where the run ended before, or the request was refused.
    """

    ask: Ask
    engine: int
    sent_s: float | None
    started_s: float | None
    first_token_s: float | None
    finished_s: float | None
    cached_tokens: int
    best_tokens: int
    seen_tokens: int
    refused: bool = False
