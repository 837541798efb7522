"""The dashboard as one file that needs nothing else, and the policy that lets nothing else run in it."""

import base64
import hashlib
from importlib import resources

from msgspec import Struct

_STYLES = ("base.css", "parts.css")
_SCRIPTS = (
    "base.js", "net.js", "now.js", "engines.js", "funnel.js", "time.js", "split.js", "lists.js", "main.js",
)  # fmt: skip
"""In the order in which they need each other; they share one scope."""


class Page(Struct, frozen=True):
    """`policy` is for the header `Content-Security-Policy`."""

    body: bytes
    policy: str


def dashboard() -> Page:
    """Reads the sources, so it is called once, at the start.

    The policy names the one style sheet and the one script by their digests: markup that got in would run
    nothing, and the page can talk to nobody but this port and be framed by nobody.
    """
    style, script = _joined(_STYLES), _joined(_SCRIPTS)
    html = _source("index.html").replace("{{style}}", style).replace("{{script}}", script)
    policy = (
        f"default-src 'none'; style-src {_digest(style)}; script-src {_digest(script)}; img-src data:; "
        "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    )
    return Page(html.encode(), policy)


def _joined(names: tuple[str, ...]) -> str:
    return "\n".join(map(_source, names))


def _source(name: str) -> str:
    return resources.files("gateway.edge").joinpath("dashboard", name).read_text(encoding="utf-8")


def _digest(text: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"
