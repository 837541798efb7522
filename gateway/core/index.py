"""The prefix index: every engine's cache, in tokens as well as in blocks."""

import math
from collections.abc import Container, Mapping

from msgspec import Struct

from gateway.core.blocks import BLOCK_BYTES
from gateway.core.engine import Engine, Residency
from gateway.core.lengths import Lengths, Ruler
from gateway.core.prefix import SEAM, EngineCache, PooledCache
from gateway.core.request import Grant, Request, Usage
from gateway.core.slotcache import SlotCache
from gateway.core.smoothing import Rate

DEFAULT_BYTES_PER_TOKEN = 4.0
"""English text and code under common vocabularies, until the model's own ratio is learned."""

UNKNOWN_BOUND_TOKENS = 1_000_000
"""Bound of the index for an engine that does not tell its KV size: some 64,000 blocks, 8 MB."""

HOST_COPY_TOKENS = 65_536
"""Prompts assumed to survive in llama.cpp's host memory: 8 GiB (`--cache-ram` default) at 128 KiB a token."""

_TOKEN_ID_BYTES = 4.0
_WORTH_A_NEW_BOUND = 0.01
_LEARN_FROM_TOKENS = 32

_RATIO_KEEP = 0.98
"""Some fifty prompts: a cache holds those of many conversations, and its size in bytes is their mean."""

_FITS_APART = 1 << 48


class Prompt(Struct, frozen=True):
    """A request's chain of blocks under one model, and its length in tokens as it is known now."""

    blocks: tuple[int, ...]
    ruler: Ruler
    tokens: int


class Index:
    """`block_bytes`: canonical bytes behind each hash of a request's `blocks`."""

    def __init__(self, engines: Mapping[str, Engine], block_bytes: int = BLOCK_BYTES) -> None:
        self._block_bytes = block_bytes
        self._lengths = Lengths(block_bytes)
        self._bytes_per_token: dict[str, float] = {}
        self._ratios: dict[str, Rate] = {}
        self._bounded_at: dict[str, float] = {}
        self._engines = engines
        self._fits = 0
        self._fitted: dict[str, int] = {}
        self._caches: dict[str, EngineCache] = {}
        for engine in engines.values():
            self.fit(engine)

    def bytes_per_token(self, request: Request, model: str) -> float:
        if request.token_ids:
            return _TOKEN_ID_BYTES
        return self._bytes_per_token.get(model, DEFAULT_BYTES_PER_TOKEN)

    def version(self, engine: str) -> int:
        """Changes whenever a match on the engine could come out differently."""
        return self._fitted[engine] + self._caches[engine].version

    def prompt(self, request: Request, model: str) -> Prompt:
        """What a match needs of a request, whatever the engine."""
        blocks, ratio = request.blocks_of(model), self.bytes_per_token(request, model)
        ruler = self._ruler(request, model)
        rest = (request.prompt_bytes - len(blocks) * self._block_bytes) / ratio
        return Prompt(blocks, ruler, max(1, math.ceil(ruler.tokens_at(len(blocks)) + rest)))

    def match(self, engine: Engine, prompt: Prompt) -> tuple[int, int, int, object]:
        """(prompt, resident, pending) tokens of `prompt` on `engine`, predicted, and the leaf of the match.

        Floored to the engine's KV block and to prompt - 1: an engine always computes the last token
        (vLLM `v1/core/kv_cache_manager.py`; llama.cpp likewise).
        """
        blocks, ruler, tokens = prompt.blocks, prompt.ruler, prompt.tokens
        if not blocks:
            return tokens, 0, 0, None
        match, leaf = self._caches[engine.name].match_and_leaf(blocks)
        if not match.resident and not match.pending:
            return tokens, 0, 0, leaf
        block = engine.facts.block_tokens
        resident = _floor(ruler.tokens_at(match.resident), block, tokens)
        if not match.pending:
            return tokens, resident, 0, leaf
        total = _floor(ruler.tokens_at(match.resident + match.pending), block, tokens)
        return tokens, resident, total - resident, leaf

    def unshared_tokens(self, engine: str, request: Request, model: str) -> int:
        """How much of a prompt that lies in a slot no other slot of the engine holds as well."""
        cache = self._caches[engine]
        blocks = cache.unshared(request.blocks_of(model)) if isinstance(cache, SlotCache) else 0
        return int(blocks * self._block_bytes / self.bytes_per_token(request, model))

    def displaces(
        self, engine: str, prompt_bytes: float, wanted: Container[object], now: float
    ) -> float | None:
        """When the youngest was last used of all that goes if so much of a new prompt comes: None if there is
        room, infinite if what runs there now would have to go. What is `wanted` (`Seen.leaf`) is used now."""
        cache = self._caches[engine]
        if not isinstance(cache, PooledCache):
            return None
        return cache.displaces(int(prompt_bytes / self._block_bytes), wanted, now)

    def begin(self, engine: str, request: Request, model: str, now: float) -> None:
        blocks = request.blocks_of(model)
        if blocks:
            self._caches[engine].begin(request.key, blocks, now)

    def confirm(self, engine: str, key: int, now: float) -> None:
        self._caches[engine].confirm(key, now)

    def end(self, engine: str, key: int, now: float) -> None:
        self._caches[engine].end(key, now)

    def forget(self, engine: str) -> None:
        self._caches[engine].forget()

    def delivered(self, engine: Engine, request: Request, grant: Grant, usage: Usage, now: float) -> None:
        """Learn from what the engine reported of a request that ended well: its prompt is there now."""
        self._learn_length(request, grant.model, usage.prompt_tokens or 0)
        cache, cached = self._caches[engine.name], usage.cached_tokens
        cache.confirm(request.key, now)
        if cached is not None and isinstance(cache, SlotCache):
            cache.delivered(request.key, grant.predicted_tokens, cached)
        elif cached is not None and isinstance(cache, PooledCache):
            self._compare(cache, engine.facts.block_tokens, request, grant.model, cached)

    def _compare(
        self, cache: PooledCache, unit_tokens: int, request: Request, model: str, cached_tokens: int
    ) -> None:
        """What was expected of the engine with what it reports; mostly the same."""
        found = cache.found(request.key)
        if found is None:
            return
        ruler = self._ruler(request, model)
        if found.ghost or not ruler.may_have(found.resident - SEAM, cached_tokens, unit_tokens):
            cache.delivered(request.key, *ruler.depths(cached_tokens, unit_tokens))

    def _ruler(self, request: Request, model: str) -> Ruler:
        return self._lengths.ruler(request.blocks_of(model), self.bytes_per_token(request, model))

    def _learn_length(self, request: Request, model: str, tokens: int) -> None:
        blocks = request.blocks_of(model)
        if tokens < _LEARN_FROM_TOKENS or not blocks or request.prompts > 1:
            return
        self._lengths.learn(blocks, tokens * len(blocks) * self._block_bytes / request.prompt_bytes)
        if request.token_ids:
            return
        ratio = min(16.0, max(1.0, request.prompt_bytes / tokens))
        learned = self._ratios.get(model)
        if learned is None:
            learned = self._ratios[model] = Rate(_RATIO_KEEP)
        self._bytes_per_token[model] = new = learned.add(tokens * ratio, tokens)
        bounded_at = self._bounded_at.get(model, 0.0)
        if abs(new - bounded_at) > _WORTH_A_NEW_BOUND * bounded_at:
            self._bounded_at[model] = new
            for other in self._engines.values():
                if model in other.facts.models:
                    self._bound(other)

    def size(self, engine: str) -> tuple[int, int]:
        """(blocks held, bound) of an engine."""
        cache = self._caches[engine]
        return len(cache), cache.bound_blocks

    def fit(self, engine: Engine) -> None:
        """Give the engine the kind of cache that it has; what is known stays if the kind does."""
        # Another cache, block size or engine of this name must not be taken for what was looked at before.
        self._fits += _FITS_APART
        self._fitted[engine.name] = self._fits
        cache = self._caches.get(engine.name)
        if engine.facts.residency is Residency.SLOTS:
            if isinstance(cache, SlotCache):
                cache.resize(engine.facts.slots)
            else:
                self._caches[engine.name] = SlotCache(
                    engine.facts.slots, self._blocks(engine, HOST_COPY_TOKENS)
                )
        else:
            if not isinstance(cache, PooledCache):
                self._caches[engine.name] = PooledCache(0)
            self._bound(engine)

    def remove(self, engine: str) -> None:
        del self._caches[engine], self._fitted[engine]

    def _bound(self, engine: Engine) -> None:
        cache = self._caches[engine.name]
        if isinstance(cache, PooledCache):
            cache.bound_blocks = self._blocks(engine, engine.facts.kv_tokens or UNKNOWN_BOUND_TOKENS)

    def _blocks(self, engine: Engine, tokens: int) -> int:
        ratios = [self._bytes_per_token[m] for m in engine.facts.models if m in self._bytes_per_token]
        ratio = min(ratios, default=DEFAULT_BYTES_PER_TOKEN)
        return max(1, int(tokens * ratio / self._block_bytes))


def _floor(tokens: float, block: int, prompt: int) -> int:
    return min(int(tokens), prompt - 1) // block * block
