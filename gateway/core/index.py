"""The prefix index: every engine's cache, in tokens as well as in blocks."""

from collections.abc import Container, Mapping
from math import ceil

from msgspec import Struct

from gateway.core.blocks import BLOCK_BYTES
from gateway.core.engine import Engine, Residency
from gateway.core.lengths import Lengths, Ruler
from gateway.core.matches import EngineCache, Sight, Versioned
from gateway.core.prefix import SEAM, PooledCache
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
_LEAST_RATIO, _MOST_RATIO = 1.0, 16.0
_WORTH_A_NEW_BOUND = 0.01
_LEARN_FROM_TOKENS = 32

_RATIO_KEEP = 0.98
"""Some fifty prompts: a cache holds those of many conversations, and its size in bytes is their mean."""

_FITS_APART = 1 << 48


class Prompt(Struct, eq=False, gc=False):
    """A request's chain of blocks under one model, and its length in tokens as it is known now: with what is
    beyond the last full block in `tokens`, without it in `blocks_tokens`."""

    model: str
    blocks: tuple[int, ...]
    ruler: Ruler
    tokens: int
    blocks_tokens: float


class Seen(Struct, eq=False, gc=False):
    """What one engine holds of one prompt, as of a version of the index; `leaf` as in `matches.Sight`."""

    version: int
    model: str
    prompt_tokens: int
    resident_tokens: int
    pending_tokens: int
    leaf: object
    sight: Sight | None = None

    @property
    def uncached_tokens(self) -> int:
        return max(1, self.prompt_tokens - self.resident_tokens - self.pending_tokens)

    @property
    def uncached(self) -> float:
        """The share of the prompt that is to be computed."""
        return self.uncached_tokens / self.prompt_tokens


class _Ratio:
    """The bytes in a token of one model: as learned, and as they were when caches were bounded by them."""

    __slots__ = ("bounded_at", "bytes_per_token", "learned")

    def __init__(self) -> None:
        self.learned = Rate(_RATIO_KEEP)
        self.bytes_per_token = DEFAULT_BYTES_PER_TOKEN
        self.bounded_at = 0.0


class Index:
    """`block_bytes`: canonical bytes behind each hash of a request's `blocks`."""

    def __init__(self, engines: Mapping[str, Engine], block_bytes: int = BLOCK_BYTES) -> None:
        self._block_bytes = block_bytes
        self._lengths = Lengths(block_bytes)
        self._ratios: dict[str, _Ratio] = {}
        self._engines = engines
        self._fits = 0
        self._caches: dict[str, EngineCache] = {}
        for engine in engines.values():
            self.fit(engine)

    def bytes_per_token(self, request: Request, model: str) -> float:
        if request.token_ids:
            return _TOKEN_ID_BYTES
        ratio = self._ratios.get(model)
        return DEFAULT_BYTES_PER_TOKEN if ratio is None else ratio.bytes_per_token

    def version(self, engine: str) -> int:
        """Changes whenever a match on the engine could come out differently."""
        return self.versioned(engine).version

    def versioned(self, engine: str) -> Versioned:
        """What has this version, until the engine's facts are others."""
        return self._caches[engine].versioned

    def prompt(self, request: Request, model: str) -> Prompt:
        """What a match needs of a request, whatever the engine."""
        blocks = request.blocks_of(model) if request.pool else request.blocks
        ratio, count = self.bytes_per_token(request, model), len(blocks)
        ruler = self._lengths.ruler(blocks, ratio)
        tokens = ruler.tokens_by(ruler.last, count)
        rest = (request.prompt_bytes - count * self._block_bytes) / ratio
        return Prompt(model, blocks, ruler, max(1, ceil(tokens + rest)), tokens)

    def match(self, engine: Engine, prompt: Prompt, version: int = 0) -> Seen:
        """How many tokens of `prompt` are on `engine`, predicted, as of this `version`.

        Floored to the engine's KV block and to prompt - 1: an engine always computes the last token
        (vLLM `v1/core/kv_cache_manager.py`; llama.cpp likewise).
        """
        blocks, tokens = prompt.blocks, prompt.tokens
        if not blocks:
            return Seen(version, prompt.model, tokens, 0, 0, None)
        sight = self._caches[engine.name].sight(blocks)
        if sight is None:
            return Seen(version, prompt.model, tokens, 0, 0, None)
        resident, pending = sight.resident, 0
        if resident:
            resident = _floor(prompt, resident, engine.block_tokens)
        if sight.pending:
            known = _floor(prompt, sight.resident + sight.pending, engine.block_tokens)
            pending = known - resident
        return Seen(version, prompt.model, tokens, resident, pending, sight.leaf, sight)

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

    def begin(
        self, engine: str, request: Request, model: str, now: float, sight: Sight | None = None
    ) -> None:
        """`sight`: what was seen there of the prompt before, perhaps."""
        blocks = request.blocks_of(model) if request.pool else request.blocks
        if blocks:
            self._caches[engine].begin(request.key, blocks, now, sight)

    def confirm(self, engine: str, key: int, now: float) -> None:
        self._caches[engine].confirm(key, now)

    def end(self, engine: str, key: int, now: float) -> None:
        self._caches[engine].end(key, now)

    def forget(self, engine: str) -> None:
        self._caches[engine].forget()

    def delivered(self, engine: Engine, request: Request, grant: Grant, usage: Usage, now: float) -> None:
        """Learn from what the engine reported of a request that ended well: its prompt is there now."""
        model = grant.model
        blocks = request.blocks_of(model) if request.pool else request.blocks
        tokens, cached, cache = usage.prompt_tokens, usage.cached_tokens, self._caches[engine.name]
        ruler = None
        if tokens is not None and tokens >= _LEARN_FROM_TOKENS and blocks and request.prompts <= 1:
            prompt_bytes, ids = request.prompt_bytes, request.token_ids
            ratio = _TOKEN_ID_BYTES if ids else self._learn_ratio(model, prompt_bytes, tokens)
            ruler = self._lengths.ruler(blocks, ratio)
            blocks_tokens = tokens * len(blocks) * self._block_bytes / prompt_bytes
            if not self._lengths.learn_by(ruler, blocks_tokens):
                ruler = None
        found = cache.confirm(request.key, now)
        if cached is None:
            return
        if isinstance(cache, SlotCache):
            cache.delivered(request.key, grant.predicted_tokens, cached)
        elif found is not None:
            assert isinstance(cache, PooledCache)
            if ruler is None:
                ruler = self._lengths.ruler(blocks, self.bytes_per_token(request, model))
            # What was expected of the engine with what it reports; mostly the same.
            unit = engine.block_tokens
            if found.ghost or not ruler.may_have(found.resident - SEAM, cached, unit):
                cache.delivered(request.key, *ruler.depths(cached, unit))

    def _learn_ratio(self, model: str, prompt_bytes: int, tokens: int) -> float:
        """Returns the bytes in a token of the model's prompts."""
        ratio = self._ratios.get(model)
        if ratio is None:
            ratio = self._ratios[model] = _Ratio()
        shown = prompt_bytes / tokens
        if not _LEAST_RATIO <= shown <= _MOST_RATIO:
            shown = min(_MOST_RATIO, max(_LEAST_RATIO, shown))
        ratio.bytes_per_token = new = ratio.learned.add(tokens * shown, tokens)
        if abs(new - ratio.bounded_at) > _WORTH_A_NEW_BOUND * ratio.bounded_at:
            ratio.bounded_at = new
            for other in self._engines.values():
                if model in other.facts.models:
                    self._bound(other)
        return new

    def size(self, engine: str) -> tuple[int, int]:
        """(blocks held, bound) of an engine."""
        cache = self._caches[engine]
        return len(cache), cache.bound_blocks

    def fit(self, engine: Engine) -> None:
        """Give the engine the kind of cache that it has; what is known stays if the kind does."""
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
        # Another cache, block size or engine of this name must not be taken for what was looked at before.
        self._fits += _FITS_APART
        versioned = self._caches[engine.name].versioned
        versioned.version = self._fits + versioned.version % _FITS_APART

    def remove(self, engine: str) -> None:
        del self._caches[engine]

    def _bound(self, engine: Engine) -> None:
        cache = self._caches[engine.name]
        if isinstance(cache, PooledCache):
            cache.bound_blocks = self._blocks(engine, engine.facts.kv_tokens or UNKNOWN_BOUND_TOKENS)

    def _blocks(self, engine: Engine, tokens: int) -> int:
        ratios = [self._ratios[m].bytes_per_token for m in engine.facts.models if m in self._ratios]
        ratio = min(ratios, default=DEFAULT_BYTES_PER_TOKEN)
        return max(1, int(tokens * ratio / self._block_bytes))


def _floor(prompt: Prompt, depth: int, block_tokens: int) -> int:
    """Tokens of the first blocks of a prompt, in whole blocks of an engine's and without the last token."""
    known = prompt.blocks_tokens if depth == len(prompt.blocks) else prompt.ruler.tokens_at(depth)
    tokens = min(int(known), prompt.tokens - 1)
    return tokens - tokens % block_tokens
