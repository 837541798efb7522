"""Regular expressions of a configuration that run on clients' text: only such as cannot take long.

`re` cannot be interrupted, and the text is anybody's. So a pattern says how far each repeat may go, and at
one place it takes so many steps at most: its time grows with the text and no faster.
"""

import importlib
import re
from collections.abc import Iterable
from typing import Any

MAX_STEPS = 500
"""At one place of a text, as a matcher without a memory goes: what is tried again counts again."""

_MAX_CHARS = 1000
_ENDLESS = (float("inf"), float("inf"))
# Two ways to the power of this are more than all steps.
_MAX_POWER = 10

# The only parser that reads a pattern as `re` does. It has had this name from Python 3.11 on.
_parser: Any = importlib.import_module("re._parser")
_REPEATS = frozenset(("MAX_REPEAT", "MIN_REPEAT", "POSSESSIVE_REPEAT"))

_Cost = tuple[float, float]
"""In how many ways something can match, and the steps to have tried them all."""


def compiled(text: str) -> re.Pattern[str]:
    """Raises ValueError, for a person who has to write another one."""
    if len(text) > _MAX_CHARS:
        raise ValueError(f"is longer than {_MAX_CHARS} characters")
    try:
        pattern = re.compile(text)
        tree = _parser.parse(text)
    except (re.error, RecursionError, OverflowError) as error:
        raise ValueError(f"is no regular expression: {error}") from None
    if tree.getwidth()[0] == 0:
        raise ValueError("matches the empty string, which is everywhere")
    if _cost(tree)[1] > MAX_STEPS:
        raise ValueError(
            "could take too long on some texts: say how often something may repeat, {1,20} for + and {0,200} "
            "for *, and let no repeat be inside or near another long one"
        )
    return pattern


def _cost(tree: Iterable[tuple[Any, Any]]) -> _Cost:
    """One thing after the other: what follows is tried for every way in which that before it matches."""
    ways, steps = 1.0, 0.0
    for operation, given in tree:
        own_ways, own_steps = _cost_of(str(operation), given)
        steps += ways * own_steps
        ways *= own_ways
        if steps > MAX_STEPS:
            return _ENDLESS
    return ways, steps


def _cost_of(operation: str, given: Any) -> _Cost:
    if operation in _REPEATS:
        return _repeat(*given)
    if operation == "BRANCH":
        return _either(given[1])
    if operation == "GROUPREF_EXISTS":
        return _either(it for it in given[1:] if it is not None)
    if operation in ("SUBPATTERN", "ASSERT", "ASSERT_NOT"):
        ways, steps = _cost(given[-1])
        return ways, steps + 1
    return _cost(given) if operation == "ATOMIC_GROUP" else (1.0, 1.0)


def _either(trees: Iterable[Any]) -> _Cost:
    costs = list(map(_cost, trees))
    return sum(ways for ways, _ in costs), sum(steps for _, steps in costs)


def _repeat(least: int, most: Any, inner: Any) -> _Cost:
    if most is _parser.MAXREPEAT:
        return _ENDLESS
    ways, steps = _cost(inner)
    if ways == 1:
        return most - least + 1.0, most * steps
    if ways > MAX_STEPS or most > _MAX_POWER:
        return _ENDLESS
    powers = [ways**count for count in range(most + 1)]
    return sum(powers[least:]), sum(powers[:most]) * steps
