"""`models`: the names that clients may use, and the models behind them."""

import re
from typing import Annotated, Any

from pydantic import BeforeValidator, Field, PlainSerializer, model_validator

from gateway.config._section import Section


class PoolMember(Section):
    """One of the models that an alias may stand for. `classes` are kept; nothing goes by them yet."""

    model: str = Field(min_length=1)
    classes: tuple[str, ...] = ()

    @model_validator(mode="before")
    @classmethod
    def _by_name(cls, data: Any) -> Any:
        if data == "":
            raise ValueError("must be a model's name")
        return {"model": data} if isinstance(data, str) else data


def _as_list(target: object) -> object:
    if isinstance(target, str) and target:
        return [target]
    if not isinstance(target, list | tuple) or not target:
        raise ValueError("give a model's name, or a list of them")
    return target


def _as_written(pool: tuple[PoolMember, ...]) -> object:
    members = [it.model_dump() if it.classes else it.model for it in pool]
    return members[0] if len(members) == 1 and not pool[0].classes else members


_AliasName = Annotated[str, Field(min_length=1)]
_Pool = Annotated[tuple[PoolMember, ...], BeforeValidator(_as_list), PlainSerializer(_as_written)]


class ModelsConfig(Section):
    """Other names for models. Keys are exact names, or patterns in which `*` stands for any text. An alias
    stands for one model, or for a pool of them, any of which may answer."""

    aliases: dict[_AliasName, _Pool] = {}
    echo_alias: bool = True

    def alias_of(self, name: str) -> tuple[str, ...] | None:
        """The models that `name` stands for: an exact alias, else the pattern with most literal text.

        None where no alias applies. Not for names that an engine serves itself.
        """
        pool = self._pool_of(name)
        return None if pool is None else tuple(member.model for member in pool)

    def _pool_of(self, name: str) -> tuple[PoolMember, ...] | None:
        if name in self.aliases:
            return self.aliases[name]
        matching = [
            pattern
            for pattern in self.aliases
            if "*" in pattern and re.fullmatch(".*".join(map(re.escape, pattern.split("*"))), name, re.DOTALL)
        ]
        if not matching:
            return None
        return self.aliases[max(matching, key=lambda pattern: len(pattern.replace("*", "")))]
