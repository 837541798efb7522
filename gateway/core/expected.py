"""What an engine was expected to have of a prompt, to be held against what it reports."""

from typing import Protocol


class Expected(Protocol):
    def may_be(self, cached_tokens: int) -> bool:
        """Whether an engine that has all that was expected may report so few tokens: blocks, templates and
        lengths that are not known exactly make a difference that says nothing."""
        ...
