"""What an engine's cache is asked: how much of a prompt it holds, and what a request does to it."""

from collections.abc import Sequence
from typing import Protocol

from msgspec import Struct

from gateway.core.branches import Branch


class Match(Struct, frozen=True):
    """How many leading blocks an engine holds, and how many more are being computed there now.

    `ghost` more were there once and are believed gone; an engine larger than believed has them still.
    """

    resident: int
    pending: int
    ghost: int = 0


NO_MATCH = Match(0, 0)


class Sight(Struct, eq=False, gc=False):
    """A match, and where it was found. `leaf`, to be compared only, is the run of blocks that holds the last
    resident one, `deepest` the one that holds the last known one. It holds for as long as the cache has this
    `version` and its tree this `shape`. `busy` blocks lie in a slot that a request has now, `shut` ones where
    nobody gets at them before a slot is free."""

    resident: int
    pending: int = 0
    ghost: int = 0
    leaf: object = None
    deepest: Branch | None = None
    version: int = -1
    shape: int = -1
    busy: int = 0
    shut: int = 0


class Versioned(Protocol):
    """`version` changes whenever a match could come out differently, not when something is merely used."""

    version: int


class EngineCache(Protocol):
    """One engine's blocks. `key` is a request's: what it computes is pending until it is confirmed."""

    bound_blocks: int

    @property
    def versioned(self) -> Versioned: ...

    def __len__(self) -> int: ...

    def match(self, blocks: Sequence[int]) -> Match: ...

    def sight(self, blocks: Sequence[int]) -> Sight | None: ...

    def begin(
        self, key: int, blocks: Sequence[int], now: float = 0.0, sight: Sight | None = None
    ) -> None: ...

    def confirm(self, key: int, now: float = 0.0) -> None: ...

    def end(self, key: int, now: float = 0.0, *, well: bool = False) -> None: ...

    def forget(self) -> None: ...
