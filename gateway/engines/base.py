"""What a dialect is: one engine kind's paths, answers and quirks, as pure functions of bytes."""

from collections.abc import Mapping
from typing import Protocol

from msgspec import Struct

from gateway.core.call import Call, Prepared
from gateway.core.engine import Facts, LoadReport, Probe


class Answer(Struct, frozen=True, kw_only=True):
    """One answer to a probe. `headers` are lower case."""

    status: int
    headers: Mapping[str, str]
    body: bytes


class Dialect(Protocol):
    """One engine kind. All methods are pure; a body that cannot be read gives the default, never an error.

    `facts_paths` are fetched once per process of the engine, `load_path` at every probe. `cap_setting` is
    what the engine's operator calls its cap, with the default, for a person who has to look it up;
    `cached_setting` says what makes it tell cached tokens, for one whose engine does not.
    """

    @property
    def kind(self) -> str: ...
    @property
    def health_path(self) -> str: ...
    @property
    def facts_paths(self) -> tuple[str, ...]: ...
    @property
    def load_path(self) -> str | None: ...
    @property
    def cap_setting(self) -> str: ...
    @property
    def cached_setting(self) -> str: ...

    def read_health(self, answer: Answer) -> Probe: ...

    def read_identity(self, answer: Answer) -> str | None:
        """Something in an answer of `health_path` that another process of the engine would not repeat."""
        ...

    def read_facts(self, answers: Mapping[str, Answer]) -> Facts: ...

    def read_load(self, answer: Answer, asked_at: float) -> LoadReport | None: ...

    def prepare(self, call: Call) -> Prepared: ...
