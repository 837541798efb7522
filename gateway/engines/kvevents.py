"""KV cache events as vLLM and SGLang publish them (ZMQ, msgpack): what they say of blocks in GPU memory.

A batch is an array `[time, events, rank]`. vLLM's events are maps since PR #42892 (June 2026) and were arrays
before, SGLang's are arrays (`distributed/kv_events.py`, `disaggregation/kv_events.py`). Tokens are counted
and not read: nothing here may keep a prompt.
"""

from collections.abc import Iterator
from typing import Any

import msgspec
from msgspec import Raw, Struct

from gateway.core.events import BlockEvent, Cleared, Removed, Stored

_MASK = (1 << 64) - 1
_FULL_ATTENTION = frozenset({"full_attention", "mla_attention", "sink_full_attention"})
"""KV groups that keep all of a prompt. Others (sliding window, mamba) drop blocks that can still be hit."""

_GPU = (None, "GPU")
_NO_TOKENS = Raw(b"\x90")
_Hash = int | bytes


class Batch(Struct, frozen=True):
    """What one message says, in order. `sent_s` is the engine's wall clock."""

    sent_s: float
    events: list[BlockEvent]


class _Batch(Struct, array_like=True, gc=False):
    sent_s: float
    events: list[Raw]


class _Fields(Struct, gc=False):
    """Every event that is a map: what it does not have stays as it is here."""

    type: str
    block_hashes: list[_Hash] = []
    parent_block_hash: _Hash | None = None
    token_ids: Raw = _NO_TOKENS
    block_size: int = 0
    medium: str | None = None
    group_idx: int | None = None
    kv_cache_spec_kind: str | None = None
    locality: str | None = None


class _Stored(Struct, array_like=True, gc=False):
    """The eighth is a LoRA's name in vLLM and a map in SGLang, and says nothing that is needed."""

    type: str
    block_hashes: list[_Hash]
    parent_block_hash: _Hash | None
    token_ids: Raw
    block_size: int
    lora_id: Any = None
    medium: str | None = None
    lora_name_or_salt: Any = None
    extra_keys: Any = None
    group_idx: int | None = None
    kv_cache_spec_kind: str | None = None


class _Removed(Struct, array_like=True, gc=False):
    type: str
    block_hashes: list[_Hash]
    medium: str | None = None
    group_idx: int | None = None


class _Typed(Struct, array_like=True, gc=False):
    type: str


_batch = msgspec.msgpack.Decoder(_Batch).decode
_fields = msgspec.msgpack.Decoder(_Fields).decode
_typed = msgspec.msgpack.Decoder(_Typed).decode
_stored = msgspec.msgpack.Decoder(_Stored).decode
_removed = msgspec.msgpack.Decoder(_Removed).decode


class KvDecoder:
    """One engine's. `block_tokens`: tokens in a block. It counts what it cannot use and never fails."""

    def __init__(self, block_tokens: int) -> None:
        self._block_tokens = block_tokens
        self._group: int | None = None
        self.events = 0
        self.unknown = 0
        """Events of a type that nothing is known of."""
        self.skipped = 0
        """Events of other memory, groups or block sizes."""
        self.errors = 0
        """Batches and events that cannot be read."""

    def decode(self, payload: bytes) -> Batch | None:
        """None for a batch that cannot be read. Beside an event that cannot, the rest of its batch counts."""
        try:
            batch = _batch(payload)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
            self.errors += 1
            return None
        return Batch(batch.sent_s, list(self._read(batch.events)))

    def _read(self, events: list[Raw]) -> Iterator[BlockEvent]:
        for raw in events:
            self.events += 1
            try:
                event = self._event(raw)
            except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
                self.errors += 1
                continue
            if event is not None:
                yield event

    def _event(self, raw: Raw) -> BlockEvent | None:
        if _is_map(raw):
            it = _fields(raw)
            if it.locality == "REMOTE":
                self.skipped += 1
                return None
            return self._told(it.type, it)
        kind = _typed(raw).type
        if kind == "BlockStored":
            return self._told(kind, _stored(raw))
        return self._told(kind, _removed(raw) if kind == "BlockRemoved" else None)

    def _told(self, kind: str, it: Any) -> BlockEvent | None:
        if kind == "BlockStored":
            return self._store(it)
        if kind == "BlockRemoved":
            return self._remove(it)
        if kind == "AllBlocksCleared":
            return Cleared()
        self.unknown += 1
        return None

    def _store(self, it: _Fields | _Stored) -> Stored | None:
        hashes = it.block_hashes
        if (
            it.medium not in _GPU
            or not self._is_full(it.kv_cache_spec_kind, it.group_idx)
            or it.block_size != self._block_tokens
            or not hashes
            or _length(it.token_ids) != len(hashes) * it.block_size
        ):
            self.skipped += 1
            return None
        parent = it.parent_block_hash
        return Stored(_numbers(hashes), None if parent is None else _number(parent))

    def _remove(self, it: _Fields | _Removed) -> Removed | None:
        group = it.group_idx
        if it.medium not in _GPU or (group is not None and group != (self._group or 0)):
            self.skipped += 1
            return None
        return Removed(_numbers(it.block_hashes))

    def _is_full(self, kind: str | None, group: int | None) -> bool:
        """Whether it is the group whose blocks are counted: the first that keeps all of a prompt, as each
        group of an engine tells of the same prompts."""
        if kind is not None and kind not in _FULL_ATTENTION:
            return False
        if group is None:
            return True
        if self._group is None and (kind is not None or group == 0):
            self._group = group
        return group == self._group


def _is_map(raw: Raw) -> bool:
    first = memoryview(raw)[0]
    return 0x80 <= first <= 0x8F or first in (0xDE, 0xDF)


def _length(raw: Raw) -> int:
    """Of an array, from its header; -1 for anything else."""
    data = memoryview(raw)
    first = data[0]
    if 0x90 <= first <= 0x9F:
        return first & 0x0F
    if first == 0xDC:
        return int.from_bytes(data[1:3], "big")
    if first == 0xDD:
        return int.from_bytes(data[1:5], "big")
    return -1


def _numbers(hashes: list[_Hash]) -> list[int]:
    """Unsigned, whatever they were: SGLang's are signed, and vLLM's may be the whole digest."""
    return [_number(it) for it in hashes]


def _number(block: _Hash) -> int:
    return block & _MASK if isinstance(block, int) else int.from_bytes(block[-8:], "big")
