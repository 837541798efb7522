"""`normalize`: one rule, as it is written and as it is run."""

from typing import Any, Literal

from pydantic import Field, ValidationInfo, field_validator, model_validator

from gateway.config._section import Section
from gateway.wire.normalize import Rule
from gateway.wire.patterns import compiled


class NormalizeRule(Section):
    """`in`, `pattern` and `with` are for `replace`, which needs a pattern."""

    rule: Literal["strip_billing_header", "sort_tools", "sort_tool_keys", "replace"]
    models: tuple[str, ...] = ()
    place: Literal["system", "tools", "messages", "all"] = Field(default="all", alias="in")
    pattern: str = ""
    replacement: str = Field(default="", alias="with")

    @model_validator(mode="before")
    @classmethod
    def _short(cls, data: Any) -> Any:
        return {"rule": data} if isinstance(data, str) else data

    @field_validator("pattern", "place", "replacement", mode="after")
    @classmethod
    def _for_replace(cls, value: str, info: ValidationInfo) -> str:
        if info.data.get("rule", "replace") != "replace":
            raise ValueError("only rule: replace takes in, pattern and with")
        return value

    @field_validator("pattern")
    @classmethod
    def _pattern(cls, value: str) -> str:
        try:
            compiled(value)
        except ValueError as error:
            raise ValueError(f"the pattern {error}") from None
        return value

    @model_validator(mode="after")
    def _complete(self) -> "NormalizeRule":
        if self.rule == "replace" and not self.pattern:
            raise ValueError("rule: replace needs a pattern")
        return self

    @property
    def as_rule(self) -> Rule:
        return Rule(
            kind=self.rule,
            models=frozenset(self.models),
            place=self.place,
            pattern=compiled(self.pattern) if self.pattern else None,
            replacement=self.replacement,
        )

    def __str__(self) -> str:
        limit = f" for {', '.join(self.models)}" if self.models else ""
        what = f" {self.pattern!r} in {self.place}" if self.pattern else ""
        return f"{self.rule}{what}{limit}"
