"""The command line. Exit codes: 0 ok, 1 what was asked for failed, 2 bad usage or configuration."""

import json
import logging
import os
import sys
from pathlib import Path
from typing import Any

import click
import uvloop

from gateway import __version__, app, config
from gateway.demo import demo
from gateway.sim.command import sim_engine

_LEVELS = ("debug", "info", "warning", "error")


class _JsonLines(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        line = {
            "time": self.formatTime(record),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        if record.exc_info:
            line["exception"] = self.formatException(record.exc_info)
        return json.dumps(line)


def _set_up_logging(level: str, fmt: str) -> None:
    handler = logging.StreamHandler(sys.stderr)
    if fmt == "json":
        handler.setFormatter(_JsonLines())
    else:
        handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(message)s"))
    logging.basicConfig(level=level.upper(), handlers=[handler], force=True)


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="prefix-gateway")
@click.option("--log-level", type=click.Choice(_LEVELS), default="info", show_default=True)
@click.option("--log-format", type=click.Choice(("text", "json")), default="text", show_default=True)
@click.pass_context
def cli(context: click.Context, log_level: str, log_format: str) -> None:
    """One OpenAI-compatible endpoint in front of several LLM engines."""
    context.obj = log_format
    _set_up_logging(log_level, log_format)


def _logging_options(command: Any) -> Any:
    """`--log-level` and `--log-format` also after the command's name."""
    command = click.option(
        "--log-level", "level", type=click.Choice(_LEVELS), help="Overrides the global one."
    )(command)
    return click.option("--log-format", "fmt", type=click.Choice(("text", "json")))(command)


@cli.command()
@click.option("--config", "path", type=click.Path(path_type=Path), help="YAML configuration file.")
@click.option(
    "--engine",
    "engines",
    multiple=True,
    metavar="URL[,KEY=VALUE...]",
    help="An engine; repeatable. Kind, models and slots are detected; slots=16,kind=vllm,name=a override.",
)
@click.option("--listen", metavar="HOST:PORT", help="The API port; 127.0.0.1:8900 by default.")
@click.option("--admin", metavar="HOST:PORT", help="Metrics and dashboard; 127.0.0.1:8901 by default.")
@click.option("--store", metavar="URL", help="memory, the only one so far.")
@click.option(
    "--workers", type=int, default=1, show_default=True, help="Processes; 1, the only number so far."
)
@_logging_options
@click.pass_obj
def serve(
    log_format: str,
    path: Path | None,
    engines: tuple[str, ...],
    listen: str | None,
    admin: str | None,
    store: str | None,
    workers: int,
    level: str | None,
    fmt: str | None,
) -> None:
    """Run the gateway in front of the given engines."""
    chosen_format = fmt or log_format
    if level or fmt:
        _set_up_logging(level or "info", chosen_format)
    try:
        settings = config.from_args(
            engines, listen=listen, admin=admin, store=store, workers=workers, path=path, env=os.environ
        )
    except config.ConfigError as error:
        raise _fail(str(error), 2) from None
    log = logging.getLogger("prefix_gateway")
    try:
        uvloop.run(app.run(settings, log, chosen_format))
    except OSError as error:
        raise _fail(f"cannot serve: {error}", 1) from None


@cli.command("check-config")
@click.argument("file", type=click.Path(path_type=Path))
def check_config(file: Path) -> None:
    """Exit 0 if FILE is a valid configuration, else print every error with its key and line."""
    problems = config.check(file, os.environ)
    if problems:
        raise _fail("\n".join(problems), 2)
    click.echo(f"{file}: ok")


def _fail(message: str, code: int) -> SystemExit:
    click.echo(message, err=True)
    return SystemExit(code)


cli.add_command(sim_engine)
cli.add_command(demo)


def main() -> None:
    cli(prog_name="prefix-gateway")
