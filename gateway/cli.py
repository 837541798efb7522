"""The command line. Exit codes: 0 ok, 1 what was asked for failed, 2 bad usage or configuration."""

import json
import logging
import os
import sys
import time
from pathlib import Path

import click
import uvloop

from gateway import __version__, app, config
from gateway.bench.command import bench
from gateway.demo import demo
from gateway.doctor import doctor
from gateway.edge.reload import ConfigFile
from gateway.remote import compare, explain, mark
from gateway.sim.command import sim_engine

_LEVELS = ("debug", "info", "warning", "error")
_FORMATS = ("text", "json")


class _Lines(logging.Formatter):
    """Times as in the access log, which goes to the same stream."""

    converter = staticmethod(time.gmtime)
    default_time_format = "%Y-%m-%dT%H:%M:%S"
    default_msec_format = "%s.%03dZ"


class _JsonLines(_Lines):
    def format(self, record: logging.LogRecord) -> str:
        line = {
            "time": self.formatTime(record),
            "level": record.levelname.lower(),
            "message": record.getMessage(),
        }
        if record.exc_info:
            line["exception"] = self.formatException(record.exc_info)
        return json.dumps(line)


class _Logging:
    """What the two options say, wherever on the command line they stand; the last one counts."""

    def __init__(self) -> None:
        self.level = "info"
        self.format = "text"

    def apply(self) -> None:
        handler = logging.StreamHandler(sys.stderr)
        text = _Lines("%(asctime)s %(levelname)s %(message)s")
        handler.setFormatter(_JsonLines() if self.format == "json" else text)
        logging.basicConfig(level=self.level.upper(), handlers=[handler], force=True)


def _noted(context: click.Context, option: click.Parameter, value: str | None) -> None:
    settings = context.find_root().ensure_object(_Logging)
    if value is not None:
        setattr(settings, "level" if option.name == "log_level" else "format", value)
    settings.apply()


def _show_version(context: click.Context, _option: click.Parameter, value: bool) -> None:
    if value:
        click.echo(f"prefix-gateway {__version__}")
        context.exit()


def _with_common_options(command: click.Command) -> click.Command:
    """`--version`, `--log-level` and `--log-format` are understood before and after a command's name."""
    command.params += [
        click.Option(["--log-level"], type=click.Choice(_LEVELS), expose_value=False, callback=_noted),
        click.Option(["--log-format"], type=click.Choice(_FORMATS), expose_value=False, callback=_noted),
        click.Option(["--version"], is_flag=True, is_eager=True, expose_value=False, callback=_show_version),
    ]
    command.context_settings.setdefault("help_option_names", ["-h", "--help"])
    for child in command.commands.values() if isinstance(command, click.Group) else ():
        _with_common_options(child)
    return command


@click.group()
def cli() -> None:
    """One OpenAI-compatible endpoint in front of several LLM engines."""


@click.command()
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
@click.pass_context
def serve(
    context: click.Context,
    path: Path | None,
    engines: tuple[str, ...],
    listen: str | None,
    admin: str | None,
    store: str | None,
    workers: int,
) -> None:
    """Run the gateway in front of the given engines."""

    def read(old: config.Config | None) -> config.Config:
        return config.from_args(
            engines,
            listen=listen,
            admin=admin,
            store=store,
            workers=workers,
            path=path,
            env=os.environ,
            instead_of=old,
        )

    file = ConfigFile(path, read) if path is not None else None
    try:
        settings = read(None)
    except config.ConfigError as error:
        raise _fail(str(error), 2) from None
    log = logging.getLogger("prefix_gateway")
    try:
        uvloop.run(app.run(settings, log, context.find_root().ensure_object(_Logging).format, file))
    except (OSError, config.TlsProblem) as error:
        raise _fail(f"cannot serve: {error}", 1) from None


@click.command("check-config")
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


_with_common_options(cli)
for _command in (serve, check_config, doctor, explain, mark, compare, sim_engine, demo, bench):
    cli.add_command(_with_common_options(_command))


def main() -> None:
    cli(prog_name="prefix-gateway")
