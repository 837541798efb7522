"""Reading JSON answers that may be anything: a value of the wrong shape is a missing one, never an error."""

from collections.abc import Iterable, Mapping

import msgspec

from gateway.core.engine import Probe
from gateway.engines.base import Answer

MODELS_PATH = "/v1/models"


def read_json(answer: Answer | None) -> object:
    """The body of a 200 answer; None for any other status and for a body that is not JSON."""
    return None if answer is None or answer.status != 200 else read_body(answer)


def read_body(answer: Answer) -> object:
    """The body of an answer of any status; None where it is not JSON."""
    try:
        value: object = msgspec.json.decode(answer.body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None
    return value


def member(value: object, *keys: str) -> object:
    """What stands at `keys` in nested objects; None where any of them is missing."""
    for key in keys:
        if not isinstance(value, dict):
            return None
        value = value.get(key)
    return value


def count(value: object) -> int | None:
    """`value` if it is a number of things that an engine can have at least one of."""
    if isinstance(value, int) and not isinstance(value, bool) and value > 0:
        return value
    return None


def amount(value: object) -> int | None:
    """`value` if it is a number of things, none included."""
    return value if isinstance(value, int) and not isinstance(value, bool) and value >= 0 else None


def share(value: object) -> float | None:
    """`value` if it is a number of at least 0, whole or not."""
    return (
        float(value)
        if isinstance(value, int | float) and not isinstance(value, bool) and value >= 0
        else None
    )


def summed(counts: Iterable[int | None]) -> int | None:
    """Their sum; None where any is unknown, and where there are none."""
    known = list(counts)
    return sum(filter(None, known)) if known and None not in known else None


def objects(value: object) -> list[dict[str, object]]:
    """The items of a list of objects; empty where any is something else."""
    if not isinstance(value, list) or not all(isinstance(item, dict) for item in value):
        return []
    return value


def strings(value: object) -> list[str]:
    """The non-empty strings of a list."""
    return [item for item in value if isinstance(item, str) and item] if isinstance(value, list) else []


def model_cards(answers: Mapping[str, Answer]) -> list[object]:
    """The entries of `GET /v1/models`."""
    cards = member(read_json(answers.get(MODELS_PATH)), "data")
    return cards if isinstance(cards, list) else []


def model_names(cards: list[object]) -> tuple[str, ...]:
    """Ids and aliases in the engine's order, each once. vLLM lists LoRA adapters as cards of their own."""
    names: dict[str, None] = {}
    for card in cards:
        names.update(dict.fromkeys(strings([member(card, "id")])))
        names.update(dict.fromkeys(strings(member(card, "aliases"))))
    return tuple(names)


def longest_context_tokens(cards: list[object]) -> int | None:
    """The longest `max_model_len` of any card: vLLM gives a LoRA adapter's as null."""
    return max(filter(None, (count(member(card, "max_model_len")) for card in cards)), default=None)


def serving(answer: Answer) -> Probe:
    """Whatever is not the server's own failure is a sign of life, an answer such as 404 included.

    Many servers behind an OpenAI-compatible URL have no health route, or want a key for it.
    """
    return Probe.OK if answer.status < 500 else Probe.ERROR
