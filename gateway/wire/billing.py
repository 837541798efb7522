"""Claude Code's billing line, the first of its system prompt: `x-anthropic-billing-header: cc_version=..;
cc_entrypoint=cli; cch=eb6c6;`.

`cch` differs from request to request in some versions (anthropics/claude-code#68900), so that an engine that
shows it to its model finds nothing of the next prompt in its cache. Engines that do not are told apart by
their dialects (`core/facts.py`).
"""

import re

from gateway.core.facts import Billing

_PREFIX = "x-anthropic-billing-header:"
_BEFORE = b"\x1esystem\x1f"
_MARK = _BEFORE + _PREFIX.encode()
# Prompts that begin with fields for the template, or with tools.
_OTHERWISE = (b"\x1f", b"\x1e\x1d")
_LINE = re.compile(rb"[^\n\x1d-\x1f]*\n?")
_CCH_TEXT = re.compile(r"cch=.{5};")
_CCH = re.compile(rb"cch=.{5};", re.DOTALL)


def is_billing(text: str) -> bool:
    return text.startswith(_PREFIX)


def has_billing(canonical: bytes) -> bool:
    """Whether the system prompt begins with the line."""
    return canonical.startswith(_MARK) or (canonical.startswith(_OTHERWISE) and _MARK in canonical)


def as_rendered(canonical: bytes, billing: Billing) -> bytes:
    """A canonical prompt that has the line, as an engine shows it to its model."""
    found = _LINE.match(canonical, canonical.find(_MARK) + len(_BEFORE))
    if billing is Billing.KEPT or found is None:
        return canonical
    line = _CCH.sub(b"cch=fffff;", found[0], count=1) if billing is Billing.MASKED else b""
    return canonical[: found.start()] + line + canonical[found.end() :]


def as_shown(text: str, billing: Billing) -> str:
    """A system text that begins with the line, as the model sees it."""
    line, _, rest = text.partition("\n")
    if billing is Billing.MASKED:
        return _CCH_TEXT.sub("cch=fffff;", line, count=1) + text[len(line) :]
    return text if billing is Billing.KEPT else rest
