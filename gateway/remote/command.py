"""The commands. What was asked for goes to stdout, errors to stderr."""

import json
import sys
from collections.abc import Callable, Mapping
from typing import Any, BinaryIO, TypeVar
from urllib.parse import urlsplit

import click
from rich.console import Console, RenderableType

from gateway.remote.admin import Admin, CannotAsk
from gateway.remote.tables import comparison, decision

_FILE_COLUMNS = 10_000
DEFAULT_ADMIN = "http://127.0.0.1:8901"

_Command = TypeVar("_Command", bound=Callable[..., Any])


def _admin_url(_: click.Context, __: click.Parameter, value: str) -> str:
    text = value if "://" in value else f"http://{value}"
    try:
        parts = urlsplit(text)
        _port = parts.port
    except ValueError:
        raise click.BadParameter(f"{value!r} is no URL") from None
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise click.BadParameter(f"{value!r} is no http or https URL, such as {DEFAULT_ADMIN}")
    if parts.username or parts.password:
        raise click.BadParameter("give the token with --admin-token, not in the URL")
    if parts.query or parts.fragment:
        raise click.BadParameter("it may have no ? and no #")
    return text.rstrip("/")


def _asks_admin(command: _Command) -> _Command:
    for option in (
        click.option("--json", "as_json", is_flag=True, help="Print JSON."),
        click.option(
            "--admin-token",
            metavar="TOKEN",
            envvar=["PREFIX_GATEWAY_ADMIN_TOKEN", "ADMIN_TOKEN"],
            show_envvar=True,
            help="The gateway's admin_token, if it has one.",
        ),
        click.option(
            "--admin",
            "url",
            metavar="URL",
            default=DEFAULT_ADMIN,
            envvar="PREFIX_GATEWAY_ADMIN",
            show_envvar=True,
            show_default=True,
            callback=_admin_url,
            help="The gateway's admin port.",
        ),
    ):
        command = option(command)
    return command


@click.command()
@click.argument("text", nargs=-1, required=True)
@_asks_admin
def mark(text: tuple[str, ...], url: str, admin_token: str | None, as_json: bool) -> None:
    """Set a mark now, to compare before and after it. TEXT says what you change."""
    body = json.dumps({"text": " ".join(text)}).encode()
    told = _asked(lambda: Admin(url, admin_token).post("/api/mark", {}, body))
    _print(told, as_json, lambda: f"{told['mark']}  {told['at']}  {told['text']}")


@click.command()
@click.argument("mark", required=False)
@click.option(
    "--minutes",
    type=click.FloatRange(0, min_open=True),
    metavar="N",
    help="At most so long before and after; by default from the mark before until the next, or now.",
)
@click.option("--from", "from_", metavar="MARK", help="Where before begins instead: a mark, or start.")
@click.option("--until", metavar="MARK", help="Where after ends instead: a mark, or now.")
@click.option("--engine", metavar="NAME", help="Only requests that this engine served.")
@click.option("--model", metavar="NAME", help="Only requests for this model.")
@_asks_admin
def compare(
    mark: str | None,
    minutes: float | None,
    from_: str | None,
    until: str | None,
    engine: str | None,
    model: str | None,
    url: str,
    admin_token: str | None,
    as_json: bool,
) -> None:
    """Hit rate, time to first token and computed tokens before and after MARK, by default the newest.

    MARK is its name, such as m3, or its text.
    """
    limit = None if minutes is None else f"{minutes}"
    given = {
        "mark": mark,
        "minutes": limit,
        "from": from_,
        "until": until,
        "engine": engine,
        "model": model,
    }
    query = {name: value for name, value in given.items() if value is not None}
    told = _asked(lambda: Admin(url, admin_token).get("/api/compare", query))
    _print(told, as_json, lambda: comparison(told))


@click.command()
@click.argument("file", type=click.File("rb"))
@click.option("--api", metavar="NAME", help="chat, completions, responses or messages; else FILE tells.")
@_asks_admin
def explain(file: BinaryIO, api: str | None, url: str, admin_token: str | None, as_json: bool) -> None:
    """Where the request with the JSON body in FILE would go now, and why. No engine is asked.

    - is standard input.
    """
    body = file.read()
    query = {} if api is None else {"api": api}
    told = _asked(lambda: Admin(url, admin_token).post("/api/explain", query, body))
    _print(told, as_json, lambda: decision(told))


def _asked(ask: Callable[[], dict[str, Any]]) -> dict[str, Any]:
    try:
        return ask()
    except CannotAsk as error:
        click.echo(str(error), err=True)
        raise SystemExit(1) from None


def _print(told: Mapping[str, Any], as_json: bool, shown: Callable[[], RenderableType]) -> None:
    """An answer that lacks what is to be shown is one of another version."""
    if as_json:
        click.echo(json.dumps(told, indent=2))
        return
    try:
        renderable = shown()
    except (KeyError, TypeError, ValueError):
        click.echo("The gateway answered, but not as this version of the command expects.", err=True)
        raise SystemExit(1) from None
    # Where nobody looks there is no width to keep to.
    width = None if sys.stdout.isatty() else _FILE_COLUMNS
    Console(width=width, highlight=False, markup=False, emoji=False).print(renderable)
