"""`prefix-gateway doctor`: the command. The report goes to stdout, progress and errors to stderr."""

import asyncio
import contextlib
import json
import os
import resource
import signal
import sys
from pathlib import Path
from urllib.parse import SplitResult, urlsplit

import click
import uvloop
from rich.console import Console
from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

from gateway.doctor.client import Client
from gateway.doctor.examine import CannotExamine, Examination, Options
from gateway.doctor.page import page
from gateway.doctor.report import Report
from gateway.doctor.text import render
from gateway.edge.target import base_url

_FILES_BESIDE = 64
"""Open files for everything but the requests."""


def _http_url(_: click.Context, option: click.Parameter, value: str | None) -> str | None:
    if value is None:
        return None
    text = value if "://" in value else f"http://{value}"
    parts = _split(text)
    if parts is None or parts.scheme not in ("http", "https") or not parts.hostname:
        raise click.BadParameter(f"{value!r} is no http or https URL, such as http://127.0.0.1:8000")
    if parts.username or parts.password:
        raise click.BadParameter("give the key with --api-key, not in the URL")
    if parts.query or parts.fragment:
        raise click.BadParameter("the paths of the API are put after it, so it may have no ? and no #")
    return base_url(text)


def _split(url: str) -> SplitResult | None:
    """None where it is broken, its port too."""
    try:
        parts = urlsplit(url)
        _ = parts.port
    except ValueError:
        return None
    return parts


@click.command()
@click.argument("url", callback=_http_url)
@click.option("--model", metavar="NAME", help="The model to ask for; by default the first of /v1/models.")
@click.option(
    "--api-key", metavar="KEY", envvar="PREFIX_GATEWAY_DOCTOR_KEY", show_envvar=True, help="Sent as a bearer."
)
@click.option("--max-concurrency", type=click.IntRange(1, 4096), default=32, show_default=True, metavar="N")
@click.option(
    "--engine-url",
    callback=_http_url,
    metavar="URL",
    help="The engine itself, where URL is a proxy: its own counters are read there.",
)
@click.option(
    "--min-stream-rate",
    type=click.FloatRange(0, min_open=True),
    metavar="TOK_S",
    help="Say how many slots keep so many tokens/s for each stream.",
)
@click.option("--no-stream", is_flag=True, help="Ask for answers in one piece.")
@click.option(
    "--prompt-tokens",
    type=click.IntRange(1),
    metavar="N",
    help="Size of each prompt; by default 64, fewer on slow engines.",
)
@click.option(
    "--output-tokens",
    type=click.IntRange(2),
    metavar="N",
    help="Length of each answer; by default by the engine's speed.",
)
@click.option(
    "--max-seconds",
    type=click.FloatRange(5),
    default=240,
    show_default=True,
    metavar="S",
    help="When to stop and tell what is known.",
)
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@click.option(
    "--html",
    "html",
    type=click.Path(dir_okay=False, path_type=Path),
    metavar="FILE",
    help="Write a page with the figures, too.",
)
def doctor(
    url: str,
    model: str | None,
    api_key: str | None,
    max_concurrency: int,
    engine_url: str | None,
    min_stream_rate: float | None,
    no_stream: bool,
    prompt_tokens: int | None,
    output_tokens: int | None,
    max_seconds: float,
    as_json: bool,
    html: Path | None,
) -> None:
    """Find how many requests URL really runs at once, and what holds the others.

    URL is anything that speaks the OpenAI API: an engine, a proxy, this gateway. Sends short requests that no
    cache holds, more and more at once, up to --max-concurrency. Ctrl-C ends it with what is known so far.
    """
    _allow_files(max_concurrency)
    _is_writable(html)
    options = Options(
        base=url,
        model=model,
        max_concurrency=max_concurrency,
        engine_base=engine_url,
        stream=not no_stream,
        prompt_tokens=prompt_tokens,
        output_tokens=output_tokens,
        max_s=max_seconds,
    )
    try:
        examination = uvloop.run(_examine(options, api_key))
    except CannotExamine as error:
        click.echo(str(error), err=True)
        sys.exit(1)
    report = Report(examination.findings, min_stream_rate)
    if as_json:
        click.echo(json.dumps(report.as_json(), indent=2))
    else:
        Console().print(render(report))
    if html is not None:
        _write(html, report)
    sys.exit(1 if examination.findings.interrupted and report.verdict.tried == 0 else 0)


def _allow_files(streams: int) -> None:
    """Each request is an open file. Refuses where even the hard limit is too low."""
    wanted = streams * 2 + _FILES_BESIDE
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        if hard != resource.RLIM_INFINITY and hard < wanted:
            raise click.BadParameter(
                f"{streams} at once need {wanted} open files and {hard} are allowed (ulimit -n)",
                param_hint="--max-concurrency",
            )
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


def _is_writable(path: Path | None) -> None:
    """Refuses what could not be written minutes later."""
    if path is not None and not os.access(path if path.exists() else path.absolute().parent, os.W_OK):
        raise click.BadParameter(f"{path} cannot be written", param_hint="--html")


def _write(path: Path, report: Report) -> None:
    try:
        path.write_text(page(report), encoding="utf-8")
    except OSError as error:
        click.echo(f"--html {path}: {error.strerror}", err=True)
        sys.exit(1)
    click.echo(f"wrote {path}", err=True)


async def _examine(options: Options, api_key: str | None) -> Examination:
    bar = Progress(
        SpinnerColumn(),
        TextColumn("{task.description}"),
        BarColumn(),
        TimeElapsedColumn(),
        console=Console(stderr=True),
        transient=True,
    )
    task = bar.add_task("", total=1.0)

    def told(what: str, share: float) -> None:
        bar.update(task, description=what, completed=share)

    async with Client(api_key, options.max_s) as client:
        examination = Examination(client, options, told)
        with bar:
            await _until_stopped(examination, options.max_s)
    return examination


async def _until_stopped(examination: Examination, max_s: float) -> None:
    """Runs it to its end, a signal, or the time limit; what was found until then is kept."""
    running = asyncio.create_task(examination.run())
    loop = asyncio.get_running_loop()

    def stop(why: str) -> None:
        examination.findings.interrupted = why
        running.cancel()

    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stop, "interrupted")
    timer = loop.call_later(max_s, stop, f"stopped after {max_s:g} s (--max-seconds)")
    try:
        with contextlib.suppress(asyncio.CancelledError):
            await running
    finally:
        timer.cancel()
