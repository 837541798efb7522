"""What the conversations of one client share: its system texts and tools, in the forms in which they were
seen."""

from __future__ import annotations

from array import array
from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping, Sequence

from msgspec import Struct

from gateway.core.blocks import BLOCK_BYTES
from gateway.core.divergence import FAMILY_BYTES, Break, family_break, system_count
from gateway.core.prompts import Look, Pair, Prompt
from gateway.core.shapes import Outline, Segment, first_difference

MAX_FAMILIES = 1_024
MAX_VARIANTS = 8
MAX_BYTES = 16 << 20
_MAX_COMPARED = 16
_MAX_DEPTHS = 64
_ANCHORS = 6

_NO_BODY = Outline()


class Variant(Struct, eq=False):
    """One form of the shared part. `blocks` begin a prompt that had it; `depth` of them are surely no more
    than it, 0 while that is not known."""

    shared: Outline
    blocks: array[int]
    depth: int = 0

    @property
    def kept_bytes(self) -> int:
        return 1_000 + self.shared.kept_bytes + 8 * len(self.blocks)


class Family(Struct, eq=False):
    model: str
    anchors: set[int]
    variants: list[Variant]


class Families:
    """Bounded: 1,024 families of 8 forms each, those used last. Forms are found by the digests of their
    segments, by the blocks of a prompt, and by what they have in common: the same tools, a system text that
    is but for what changes by itself, or some of its lines."""

    def __init__(self, max_families: int = MAX_FAMILIES, max_bytes: int = MAX_BYTES) -> None:
        self._max, self._max_bytes = max_families, max_bytes
        self.kept_bytes = 0
        self._families: OrderedDict[int, Family] = OrderedDict()
        self._by_anchor: dict[tuple[str, int], Family] = {}
        self._by_digest: dict[tuple[str, bytes], tuple[Family, Variant]] = {}
        self._by_block: dict[int, Variant] = {}
        self._depths: dict[int, int] = {}

    def __len__(self) -> int:
        return len(self._families)

    def known_by(self, blocks: Sequence[int]) -> Outline | None:
        """The shared part of a prompt that begins with a form's blocks."""
        for depth in self._depths:
            if depth <= len(blocks) and (variant := self._by_block.get(blocks[depth - 1])) is not None:
                return variant.shared
        return None

    def known(self, model: str, shared: Outline, blocks: Sequence[int]) -> Outline | None:
        """The form that is `shared`, which learns from `blocks` how deep it goes."""
        found = self._by_digest.get((model, shared.digests.tobytes()))
        if found is None:
            return None
        family, variant = found
        self._families.move_to_end(id(family))
        common = first_difference(variant.blocks, array("Q", blocks[: len(variant.blocks)]))
        if common and (not variant.depth or common < variant.depth):
            self._set_depth(variant, common)
        return variant.shared

    def add(
        self,
        model: str,
        shared: Outline,
        segments: Callable[[], Sequence[Segment]],
        blocks: Sequence[int],
        look: Look,
        *,
        compare: bool = True,
    ) -> Break | None:
        """A form that is not known yet, and where it breaks from the last of the same client; not if that is
        not to be looked for."""
        if shared.total_bytes < FAMILY_BYTES:
            return None
        anchors = _anchors(shared, look)
        near = {id(it): it for key in anchors if (it := self._by_anchor.get((model, key))) is not None}
        broken: Break | None = None
        joined = None if compare else next(iter(near.values()), None)
        if compare:
            new = Prompt(shared, _NO_BODY)
            compared = [(family, form) for family in near.values() for form in reversed(family.variants)]
            for family, form in compared[:_MAX_COMPARED]:
                broken = family_break(Pair(Prompt(form.shared, _NO_BODY), new, segments, (), look))
                if broken is not None:
                    joined = family
                    break
        most = shared.total_bytes * 2 // BLOCK_BYTES + 8
        self._join(joined, model, anchors, Variant(shared, array("Q", blocks[:most])))
        return broken

    def _join(self, family: Family | None, model: str, anchors: Iterable[int], variant: Variant) -> None:
        if family is None:
            family = Family(model, set(), [])
            self._families[id(family)] = family
        self._families.move_to_end(id(family))
        family.variants.append(variant)
        self.kept_bytes += variant.kept_bytes
        self._by_digest[model, variant.shared.digests.tobytes()] = family, variant
        family.anchors.update(anchors)
        for key in anchors:
            self._by_anchor[model, key] = family
        if len(family.variants) > MAX_VARIANTS:
            self._forget_variant(family, family.variants.pop(0))
        if len(family.anchors) > 4 * _ANCHORS * MAX_VARIANTS:
            self._forget(family)
        while len(self._families) > self._max or self.kept_bytes > self._max_bytes:
            self._forget(next(iter(self._families.values())))

    def _forget(self, family: Family) -> None:
        del self._families[id(family)]
        for variant in family.variants:
            self._forget_variant(family, variant)
        for key in family.anchors:
            if self._by_anchor.get((family.model, key)) is family:
                del self._by_anchor[family.model, key]

    def _forget_variant(self, family: Family, variant: Variant) -> None:
        self.kept_bytes -= variant.kept_bytes
        self._by_digest.pop((family.model, variant.shared.digests.tobytes()), None)
        self._set_depth(variant, 0)

    def _set_depth(self, variant: Variant, depth: int) -> None:
        old = variant.depth
        if old:
            self._by_block.pop(variant.blocks[old - 1], None)
            self._depths[old] -= 1
            if not self._depths[old]:
                del self._depths[old]
        variant.depth = 0
        if depth and (depth in self._depths or len(self._depths) < _MAX_DEPTHS):
            variant.depth = depth
            self._by_block[variant.blocks[depth - 1]] = variant
            self._depths[depth] = self._depths.get(depth, 0) + 1


def _anchors(shared: Outline, look: Look) -> Mapping[int, None]:
    """By what another form of it is found: its system texts' skeleton and some of their lines, chosen by
    their hash, and its tools' names; the surest first."""
    count = system_count(shared)
    names = [digest for code, digest in zip(shared.codes, shared.digests, strict=True) if code == "n"]
    shapes = [shape for it in shared.digests[:count] if (shape := look(it)) is not None]
    anchors: dict[int, None] = {}
    if shapes:
        anchors[hash(("system", *(shape.skeleton for shape in shapes)))] = None
    if len(names) > 1:
        anchors[hash(("tools", *sorted(names)))] = None
    lines = {piece for shape in shapes for piece in shape.pieces}
    anchors.update((hash(("line", piece)), None) for piece in sorted(lines)[:_ANCHORS])
    return anchors
