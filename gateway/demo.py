"""`prefix-gateway demo`."""

import click


@click.command()
def demo() -> None:
    """Two real engines, the gateway, six agents."""
    raise SystemExit(1)
