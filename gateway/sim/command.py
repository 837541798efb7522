"""`prefix-gateway sim-engine`: a simulated engine as a program of its own."""

import asyncio
import signal
import sys

import click

from gateway.sim.faults import parse_faults
from gateway.sim.model import BATCHINGS, KINDS
from gateway.sim.server import SimEngine
from gateway.sim.settings import SimSettings

_DEFAULTS = SimSettings()


async def run(settings: SimSettings) -> int:
    """Serves until SIGTERM, SIGINT or a kill-on fault; the exit code. Raises OSError if it cannot listen."""
    engine = SimEngine(settings)
    stopped = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stopped.set)
    await engine.start()
    try:
        click.echo(f"sim-engine {settings.kind} with {settings.slots} slots listens on {engine.url}")
        sys.stdout.flush()
        ends = [asyncio.ensure_future(stopped.wait()), asyncio.ensure_future(engine.killed.wait())]
        _, open_waits = await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
        for wait in open_waits:
            wait.cancel()
    finally:
        await engine.close()
    return 1 if engine.killed.is_set() else 0


def _check_faults(_: click.Context, __: click.Parameter, value: tuple[str, ...]) -> tuple[str, ...]:
    try:
        parse_faults(value)
    except ValueError as error:
        raise click.BadParameter(str(error)) from error
    return value


@click.command("sim-engine")
@click.option("--port", type=click.IntRange(0, 65535), required=True, help="Port to listen on; 0: any.")
@click.option("--host", default=_DEFAULTS.host, show_default=True)
@click.option("--slots", type=click.IntRange(1), default=_DEFAULTS.slots, show_default=True)
@click.option("--kv-tokens", type=click.IntRange(1), default=_DEFAULTS.kv_tokens, show_default=True)
@click.option(
    "--prefill-rate",
    type=click.FloatRange(0, min_open=True),
    default=_DEFAULTS.prefill_rate,
    show_default=True,
    help="Prompt tokens/s of the whole engine.",
)
@click.option(
    "--decode-rate",
    type=click.FloatRange(0, min_open=True),
    default=_DEFAULTS.decode_rate,
    show_default=True,
    help="Tokens/s of each answer.",
)
@click.option("--kind", type=click.Choice(KINDS), default=_DEFAULTS.kind, show_default=True)
@click.option("--model", default=_DEFAULTS.model, show_default=True)
@click.option("--max-model-len", type=click.IntRange(1), default=None, help="Longest prompt and answer.")
@click.option("--dev", is_flag=True, help="vllm: tell the number of slots, as in its development mode.")
@click.option("--batching", type=click.Choice(BATCHINGS), default=_DEFAULTS.batching, show_default=True)
@click.option(
    "--jitter",
    type=click.FloatRange(0, 1, max_open=True),
    default=_DEFAULTS.jitter,
    show_default=True,
    help="Each step takes up to this share more or less time.",
)
@click.option("--quiet", is_flag=True, help="Tell nothing of kind, slots and load.")
@click.option("--fault", "faults", multiple=True, callback=_check_faults, help="NAME[:ARG], repeatable.")
def sim_engine(**options: object) -> None:
    """Run a simulated engine: real slots, a silent queue and a prefix cache, but no model."""
    settings = SimSettings(**options)  # type: ignore[arg-type]
    try:
        code = asyncio.run(run(settings))
    except OSError as error:
        raise click.ClickException(f"cannot listen on {settings.host}:{settings.port}: {error}") from error
    sys.exit(code)
