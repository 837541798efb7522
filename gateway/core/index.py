"""The prefix index: every engine's cache, in tokens as well as in blocks."""

from collections.abc import Container, Iterable, Mapping
from math import ceil

from msgspec import Struct

from gateway.core.blocks import BLOCK_BYTES
from gateway.core.engine import Engine, Residency
from gateway.core.events import BlockEvent
from gateway.core.lengths import Lengths, Ruler
from gateway.core.matches import EngineCache, Sight, Versioned
from gateway.core.prefix import SEAM, PooledCache
from gateway.core.request import Grant, Request, Usage
from gateway.core.residence import Residence
from gateway.core.slotcache import SlotCache

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
    beyond the last full block in `tokens`, without it in `blocks_tokens`. `seen_tokens` of it, at most all
    but the last, were asked before of any engine, as far as `core/lengths.py` remembers."""

    model: str
    blocks: tuple[int, ...]
    ruler: Ruler
    tokens: int
    blocks_tokens: float
    seen_tokens: int


class Seen(Struct, eq=False, gc=False):
    """What one engine, which counts in units of `unit_tokens`, holds of one prompt, as of a version of the
    index; `leaf` as in `matches.Sight`. `held_tokens` of it are there and `known_tokens` are or will be, also
    where they are of no use now, behind or in busy slots. A cache without bounds would have `ever_tokens`.
    `is_told`: by events."""

    version: int
    model: str
    prompt_tokens: int
    resident_tokens: int
    pending_tokens: int
    leaf: object
    prompt: Prompt
    unit_tokens: int
    ever_tokens: int
    known_tokens: int
    held_tokens: int
    sight: Sight | None = None
    is_told: bool = False

    def may_be(self, cached_tokens: int) -> bool:
        """Whether the engine, if it has what is resident, may report so few: what is missing is less than
        `SEAM` blocks of mean length, or, the dearer question, what the index would not learn from
        (`Index.delivered`). Where events told of it, less than a block of the engine's."""
        if self.is_told:
            return cached_tokens + self.unit_tokens > self.resident_tokens
        depth, most = self.sight.resident if self.sight is not None else 0, cached_tokens + self.unit_tokens
        if most * depth > self.resident_tokens * (depth - SEAM):
            return True
        return self.prompt.ruler.may_have(depth - SEAM, cached_tokens, self.unit_tokens)

    @property
    def uncached_tokens(self) -> int:
        return max(1, self.prompt_tokens - self.resident_tokens - self.pending_tokens)

    @property
    def uncached(self) -> float:
        """The share of the prompt that is to be computed."""
        return self.uncached_tokens / self.prompt_tokens


class _Ratio:
    """The bytes and the tokens that one model's prompts have shown, the older the less, and the bytes in a
    token as they were when caches were bounded by them."""

    __slots__ = ("bounded_at", "shown_bytes", "shown_tokens")

    def __init__(self) -> None:
        self.shown_bytes = self.shown_tokens = self.bounded_at = 0.0


class Index:
    """`block_bytes`: canonical bytes behind each hash of a request's `blocks`."""

    def __init__(self, engines: Mapping[str, Engine], block_bytes: int = BLOCK_BYTES) -> None:
        self._block_bytes = block_bytes
        self._lengths = Lengths(block_bytes)
        self._ratios: dict[str, _Ratio] = {}
        self._bytes_per_token: dict[str, float] = {}
        self._engines = engines
        self._fits = 0
        self._caches: dict[str, EngineCache] = {}
        self.residences: dict[str, Residence] = {}
        """Of engines whose KV events are followed."""
        for engine in engines.values():
            self.fit(engine)

    def bytes_per_token(self, request: Request, model: str) -> float:
        if request.token_ids:
            return _TOKEN_ID_BYTES
        return self._bytes_per_token.get(model, DEFAULT_BYTES_PER_TOKEN)

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
        known, seen = ruler.whole()
        tokens = ceil(known + (request.prompt_bytes - count * self._block_bytes) / ratio)
        if tokens <= 0:
            tokens = 1
        return Prompt(model, blocks, ruler, tokens, known, int(seen) if seen < tokens else tokens - 1)

    def match(self, engine: Engine, prompt: Prompt, version: int = 0) -> Seen:
        """How many tokens of `prompt` are on `engine`, predicted, as of this `version`.

        Floored to the engine's KV block and to prompt - 1: an engine always computes the last token
        (vLLM `v1/core/kv_cache_manager.py`; llama.cpp likewise).
        """
        sight = self._caches[engine.name].sight(prompt.blocks)
        tokens, unit = prompt.tokens, engine.block_tokens
        model, ever = prompt.model, prompt.seen_tokens - prompt.seen_tokens % unit
        if sight is None:
            seen = Seen(version, model, tokens, 0, 0, None, prompt, unit, ever, 0, 0)
        else:
            known = held = resident = _floor(prompt, sight.resident, unit) if sight.resident else 0
            if sight.pending:
                known = _floor(prompt, sight.resident + sight.pending, unit)
            pending = known - resident
            if sight.busy or sight.shut:
                held = max(held, _floor(prompt, sight.shut, unit))
                known = max(known, held, _floor(prompt, sight.busy, unit))
            seen = Seen(
                version, model, tokens, resident, pending, sight.leaf, prompt, unit, ever, known, held, sight
            )  # fmt: skip
        if self.residences and (residence := self.residences.get(engine.name)) is not None:
            _overrule(seen, prompt, residence)
        return seen

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
        self._caches[engine].begin(request.key, blocks, now, sight)
        if self.residences and (residence := self.residences.get(engine)) is not None:
            residence.begin(request.key, now)

    def confirm(self, engine: str, key: int, now: float) -> None:
        self._caches[engine].confirm(key, now)

    def end(self, engine: str, key: int, now: float) -> None:
        """It is over, and not known to have ended well."""
        if self.residences and (residence := self.residences.get(engine)) is not None:
            residence.drop(key)
        self._caches[engine].end(key, now)

    def forget(self, engine: str) -> None:
        self._caches[engine].forget()
        if engine in self.residences:
            self.residences[engine].clear()

    # What engines tell of their blocks

    def follow(self, engine: Engine) -> None:
        """From now on the engine's KV events decide wherever they tell of a prompt."""
        self.residences[engine.name] = Residence(engine.block_tokens)

    def unfollow(self, engine: str) -> None:
        if self.residences.pop(engine, None) is not None and engine in self._caches:
            self.versioned(engine).version += 1

    def hear(self, engine: str, events: Iterable[BlockEvent], now: float) -> None:
        """What an engine that is followed tells, in order."""
        residence = self.residences.get(engine)
        if residence is not None and residence.hear(events, now):
            self.versioned(engine).version += 1

    def place(self, engine: str, now: float) -> None:
        """Now and then: find the blocks of requests that have ended."""
        residence = self.residences.get(engine)
        if residence is not None and residence.place(now):
            self.versioned(engine).version += 1

    def lose(self, engine: str) -> None:
        """Events were lost: what they told does not count any more."""
        residence = self.residences.get(engine)
        if residence is not None:
            residence.clear()
            self.versioned(engine).version += 1

    def delivered(self, engine: Engine, request: Request, grant: Grant, usage: Usage, now: float) -> None:
        """A request has ended well: its prompt is there now. Learn from what the engine reported of it."""
        model, key, cache = grant.model, request.key, self._caches[engine.name]
        blocks = request.blocks_of(model) if request.pool else request.blocks
        if self.residences and (residence := self.residences.get(engine.name)) is not None:
            residence.end(request, blocks, usage, now)
        tokens, cached, ruler = usage.prompt_tokens, usage.cached_tokens, None
        if tokens is not None and tokens >= _LEARN_FROM_TOKENS and blocks and request.prompts <= 1:
            size = request.prompt_bytes
            ratio = _TOKEN_ID_BYTES if request.token_ids else self._learn_ratio(model, size, tokens)
            ruler = self._lengths.ruler(blocks, ratio)
            if not self._lengths.learn_by(ruler, tokens * len(blocks) * self._block_bytes / size):
                ruler = None
        if cached is not None and isinstance(cache, PooledCache):
            found, unit = cache.found(key), engine.block_tokens
            if found is not None:
                if ruler is None:
                    ruler = self._lengths.ruler(blocks, self.bytes_per_token(request, model))
                # What was expected of the engine with what it reports; mostly the same.
                if found.ghost or not ruler.may_have(found.resident - SEAM, cached, unit):
                    cache.confirm(key, now)
                    cache.delivered(key, *ruler.depths(cached, unit))
                    cache.end(key, now)
                    return
        elif cached is not None and isinstance(cache, SlotCache):
            cache.delivered(key, grant.predicted_tokens, cached)
        cache.end(key, now, well=True)

    def _learn_ratio(self, model: str, prompt_bytes: int, tokens: int) -> float:
        """Returns the bytes in a token of the model's prompts."""
        ratio = self._ratios.get(model)
        if ratio is None:
            ratio = self._ratios[model] = _Ratio()
        shown = prompt_bytes / tokens
        if not _LEAST_RATIO <= shown <= _MOST_RATIO:
            shown = min(_MOST_RATIO, max(_LEAST_RATIO, shown))
        ratio.shown_bytes = shown_bytes = _RATIO_KEEP * ratio.shown_bytes + tokens * shown
        ratio.shown_tokens = shown_tokens = _RATIO_KEEP * ratio.shown_tokens + tokens
        self._bytes_per_token[model] = new = shown_bytes / shown_tokens
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
                cache.resize(engine.slots)
            else:
                self._caches[engine.name] = SlotCache(engine.slots, self._blocks(engine, HOST_COPY_TOKENS))
        else:
            if not isinstance(cache, PooledCache):
                self._caches[engine.name] = PooledCache(0)
            self._bound(engine)
        # Another cache, block size or engine of this name must not be taken for what was looked at before.
        self._fits += _FITS_APART
        versioned = self._caches[engine.name].versioned
        versioned.version = self._fits + versioned.version % _FITS_APART

    def resize(self, engine: Engine) -> None:
        """It has another number of slots than before."""
        cache = self._caches.get(engine.name)
        if isinstance(cache, SlotCache):
            cache.resize(engine.slots)

    def remove(self, engine: str) -> None:
        del self._caches[engine]
        self.residences.pop(engine, None)

    def _bound(self, engine: Engine) -> None:
        cache = self._caches[engine.name]
        if isinstance(cache, PooledCache):
            cache.bound_blocks = self._blocks(engine, engine.facts.kv_tokens or UNKNOWN_BOUND_TOKENS)

    def _blocks(self, engine: Engine, tokens: int) -> int:
        known = self._bytes_per_token
        ratio = min((known[it] for it in engine.facts.models if it in known), default=DEFAULT_BYTES_PER_TOKEN)
        return max(1, int(tokens * ratio / self._block_bytes))


def _overrule(seen: Seen, prompt: Prompt, residence: Residence) -> None:
    """What an engine's events tell of a prompt counts, up to where they know it. What is being computed there
    still is; and what was believed beyond that is believed if all before it is there."""
    sight = seen.sight
    depth = 0 if sight is None else sight.resident + sight.pending + sight.ghost
    told = residence.told(prompt.blocks, prompt.ruler, prompt.tokens, depth)
    if told is None:
        return
    tokens, known = told.tokens, seen.resident_tokens + seen.pending_tokens
    if told.whole and told.depth < depth and seen.resident_tokens > tokens:
        tokens = seen.resident_tokens
    if seen.pending_tokens:
        seen.pending_tokens = known - tokens if known > tokens else 0
    seen.resident_tokens = seen.held_tokens = tokens
    seen.known_tokens = tokens + seen.pending_tokens
    seen.is_told = True


def _floor(prompt: Prompt, depth: int, block_tokens: int) -> int:
    """Tokens of the first blocks of a prompt, in whole blocks of an engine's and without the last token."""
    tokens = int(prompt.blocks_tokens if depth == len(prompt.blocks) else prompt.ruler.tokens_at(depth))
    if tokens >= prompt.tokens:
        tokens = prompt.tokens - 1
    return tokens - tokens % block_tokens
