"""What the conversations of one client share: its system texts and tools, in the forms in which they were
seen."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping, Sequence

from msgspec import Struct

from gateway.core.divergence import FAMILY_BYTES, Break, family_break, system_count
from gateway.core.prompts import Look, Pair, Prompt
from gateway.core.shapes import Outline, Segment

MAX_FAMILIES = 1_024
MAX_VARIANTS = 8
MAX_BYTES = 16 << 20
_MAX_COMPARED = 16
_ANCHORS = 6

_NO_BODY = Outline()


def _kept_bytes(form: Outline) -> int:
    return 1_000 + form.kept_bytes


class Family(Struct, eq=False):
    model: str
    anchors: set[int]
    forms: list[Outline]


class Families:
    """Bounded: 1,024 families of 8 forms each, those used last. Forms are found by the digests of their
    segments, and by what they have in common: the same tools, a system text that is but for what changes by
    itself, or some of its lines. Not by a prompt's blocks: the one in which a form ends has the first message
    in it too, so none that sessions share tells of that end."""

    def __init__(self, max_families: int = MAX_FAMILIES, max_bytes: int = MAX_BYTES) -> None:
        self._max, self._max_bytes = max_families, max_bytes
        self.kept_bytes = 0
        self._families: OrderedDict[int, Family] = OrderedDict()
        self._by_anchor: dict[tuple[str, int], Family] = {}
        self._by_digest: dict[tuple[str, bytes], tuple[Family, Outline]] = {}

    def __len__(self) -> int:
        return len(self._families)

    def known(self, model: str, shared: Outline) -> Outline | None:
        """The form that is `shared`, one for all of its conversations."""
        found = self._by_digest.get((model, shared.digests.tobytes()))
        if found is None:
            return None
        family, form = found
        self._families.move_to_end(id(family))
        return form

    def add(
        self,
        model: str,
        shared: Outline,
        segments: Callable[[], Sequence[Segment]],
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
            compared = [(family, form) for family in near.values() for form in reversed(family.forms)]
            for family, form in compared[:_MAX_COMPARED]:
                broken = family_break(Pair(Prompt(form, _NO_BODY), new, segments, (), look))
                if broken is not None:
                    joined = family
                    break
        self._join(joined, model, anchors, shared)
        return broken

    def _join(self, family: Family | None, model: str, anchors: Iterable[int], form: Outline) -> None:
        if family is None:
            family = Family(model, set(), [])
            self._families[id(family)] = family
        self._families.move_to_end(id(family))
        family.forms.append(form)
        self.kept_bytes += _kept_bytes(form)
        self._by_digest[model, form.digests.tobytes()] = family, form
        family.anchors.update(anchors)
        for key in anchors:
            self._by_anchor[model, key] = family
        if len(family.forms) > MAX_VARIANTS:
            self._forget_form(family, family.forms.pop(0))
        if len(family.anchors) > 4 * _ANCHORS * MAX_VARIANTS:
            self._forget(family)
        while len(self._families) > self._max or self.kept_bytes > self._max_bytes:
            self._forget(next(iter(self._families.values())))

    def _forget(self, family: Family) -> None:
        del self._families[id(family)]
        for form in family.forms:
            self._forget_form(family, form)
        for key in family.anchors:
            if self._by_anchor.get((family.model, key)) is family:
                del self._by_anchor[family.model, key]

    def _forget_form(self, family: Family, form: Outline) -> None:
        self.kept_bytes -= _kept_bytes(form)
        self._by_digest.pop((family.model, form.digests.tobytes()), None)


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
