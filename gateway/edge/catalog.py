"""Which models are served, under which names."""

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from msgspec import Struct

from gateway.core.engine import Engine, Health
from gateway.core.facts import Billing
from gateway.wire.body import shown
from gateway.wire.errors import BadRequest

_REMEMBERED = 1024
"""Wildcard aliases match endless names; no more than this are remembered."""

_MAX_NAME = 256
# An engine that takes requests and names no models hides them (its list wants a key): no use to wait for it.
_HAS_ANSWERED = (Health.READY, Health.BUSY)


class Resolved(Struct, frozen=True):
    """`real` is what engines know; `alias` what the client asked for, where that is another name. `pool`:
    every model that it stands for, in the order of the configuration, where they are several; `real` is
    then the first."""

    real: str
    alias: str = ""
    pool: tuple[str, ...] = ()

    @property
    def models(self) -> tuple[str, ...]:
        """Every model that may answer."""
        return self.pool or (self.real,)


class Catalog:
    """Names of models, from the engines' own lists and `models.aliases`; `alias_of` applies the patterns.

    A pool's model that no engine serves is left out of it while another one is served.
    """

    def __init__(
        self,
        engines: Mapping[str, Engine],
        aliases: Iterable[str],
        alias_of: Callable[[str], tuple[str, ...] | None],
        created: int,
    ) -> None:
        self._engines = engines
        self._created = created
        self._resolved: dict[str, Resolved] = {}
        self._served: dict[str, Engine] = {}
        self._tools_first: set[str] = set()
        self.apply(aliases, alias_of)

    def apply(self, aliases: Iterable[str], alias_of: Callable[[str], tuple[str, ...] | None]) -> None:
        """For requests from now on."""
        self._exact = {name: models for name in aliases if "*" not in name and (models := alias_of(name))}
        self._alias_of = alias_of
        self.refresh()

    def refresh(self) -> None:
        """An engine's model list has changed, or there are other engines."""
        self._served = {
            model: engine for engine in self._engines.values() for model in reversed(engine.facts.models)
        }
        after = {
            model for it in self._engines.values() for model in it.facts.models if not it.facts.tools_first
        }
        self._tools_first = self._served.keys() - after
        self._resolved.clear()

    def tools_first(self, asked: str) -> bool:
        """Whether every engine that might answer shows tools before the system prompt."""
        if not self._tools_first:
            return False
        try:
            return self._tools_first.issuperset(self.resolve(asked).models)
        except BadRequest:
            return False

    @property
    def models(self) -> Iterable[str]:
        return self._served.keys()

    def resolve(self, asked: str) -> Resolved:
        """The model meant, served or not: while some engine has not told its models yet, a name that the
        others do not know is the scheduler's to judge, which waits for an engine that is loading.

        Raises `BadRequest`: `unknown_model`; no name where several are served, or (`no_ready_engine`) where
        none is known.
        """
        known = self._resolved.get(asked)
        if known is None:
            known = self._resolve(asked)
            if known.real in self._served and len(self._resolved) < _REMEMBERED:
                self._resolved[asked] = known
        return known

    def billing(self, api: str, models: tuple[str, ...]) -> Billing:
        """What becomes of Claude Code's billing line on every engine that might answer."""
        here = [it.facts for it in self._engines.values() if not set(models).isdisjoint(it.facts.models)]
        fates = [it.billing if api == "messages" else it.billing_elsewhere for it in here]
        return min(fates, default=Billing.KEPT)

    def _resolve(self, asked: str) -> Resolved:
        if not asked:
            return Resolved(self._only())
        if asked in self._served:
            return Resolved(asked)
        models = self._alias_of(asked)
        resolved = Resolved(asked) if models is None else self._behind(asked, models)
        if resolved.real in self._served or self._may_exist(asked):
            return resolved
        raise self._unknown(resolved)

    def _behind(self, alias: str, models: tuple[str, ...]) -> Resolved:
        here = tuple(model for model in models if model in self._served) or models
        return Resolved(here[0], alias, here if len(here) > 1 else ())

    def _only(self) -> str:
        firsts = {engine.facts.models[0] for engine in self._engines.values() if engine.facts.models}
        if len(firsts) == 1:
            return firsts.pop()
        if firsts:
            raise BadRequest(
                f"'model' is missing and several are served: {self._names()}. Name one.", param="model"
            )
        engines = ", ".join(f"{engine.name} at {engine.url}" for engine in self._engines.values())
        raise BadRequest(
            f"No engine has told its models yet ({engines}). Start one, or retry once it has loaded.",
            "no_ready_engine",
        )

    def _may_exist(self, asked: str) -> bool:
        """Whether an engine that has not told its models yet might turn out to serve it."""
        unseen = any(
            not engine.facts.models and engine.health not in _HAS_ANSWERED
            for engine in self._engines.values()
        )
        return unseen and len(asked) <= _MAX_NAME and asked.isprintable()

    def _unknown(self, resolved: Resolved) -> BadRequest:
        if resolved.alias:
            names = " or ".join(map(repr, resolved.models))
            what = f"{shown(resolved.alias)} stands for {names}, which no engine serves now"
        else:
            what = f"The model {shown(resolved.real)} is not served here"
        return BadRequest(f"{what}. Served: {self._names()}.", "unknown_model", "model")

    def cards(self) -> list[dict[str, Any]]:
        """Every served model and exact alias, as OpenAI model cards."""
        cards = [self._card(model, (model,)) for model in self._served]
        return cards + [
            self._card(alias, models) | {"root": models[0]}
            for alias, models in self._aliases().items()
            if alias not in self._served
        ]

    def card(self, name: str) -> dict[str, Any]:
        """Raises `BadRequest` for a model that is not served."""
        resolved = self.resolve(name)
        if resolved.real not in self._served:
            raise self._unknown(resolved)
        return self._card(name, resolved.models)

    def _card(self, name: str, models: tuple[str, ...]) -> dict[str, Any]:
        """The context length is one that fits whichever of `models` answers."""
        facts = [self._served[model].facts for model in models]
        card = {"id": name, "object": "model", "created": self._created, "owned_by": facts[0].kind}
        lengths = [it.max_model_len for it in facts if it.max_model_len is not None]
        if lengths:
            card["max_model_len"] = min(lengths)
        return card

    def _names(self) -> str:
        return ", ".join(sorted({*self._served, *self._aliases()})) or "nothing yet"

    def _aliases(self) -> dict[str, tuple[str, ...]]:
        """The exact ones that some engine answers to, with the models behind them."""
        behind = {alias: self._behind(alias, models).models for alias, models in self._exact.items()}
        return {alias: models for alias, models in behind.items() if models[0] in self._served}
