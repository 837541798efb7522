"""What is wrong with a configuration, and where."""

import re
from collections.abc import Sequence
from dataclasses import dataclass

Path = tuple[str | int, ...]


def key_of(path: Path) -> str:
    """`("engines", 1, "slots")` as `engines[1].slots`."""
    key = ""
    for part in path:
        if isinstance(part, int):
            key += f"[{part}]"
        elif re.fullmatch(r"[\w-]+", part):
            key += f".{part}" if key else part
        else:
            key += f"['{part}']"
    return key


@dataclass(frozen=True, slots=True)
class Problem:
    """One thing to correct. `source` is the file or the command line flag; `line` counts from 1.

    `message` says what is accepted and shows the value, unless it could be a credential.
    """

    key: str
    message: str
    source: str
    line: int | None = None

    def __str__(self) -> str:
        place = self.source if self.line is None else f"{self.source}:{self.line}"
        return ": ".join(part for part in (place, self.key, self.message) if part)


class ConfigError(ValueError):
    """The configuration cannot be used; `problems` lists everything found, in the order of the file."""

    def __init__(self, problems: Sequence[Problem]) -> None:
        self.problems = tuple(problems)
        super().__init__("\n".join(str(problem) for problem in self.problems))
