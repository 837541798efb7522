"""A real gateway whose configuration file a test rewrites."""

import contextlib
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import yaml
from harness import Running, free_config, running

from gateway.config import from_args
from gateway.edge.reload import ConfigFile

NEVER_S = 3600.0


class Reloadable:
    """`running` at `path`; every answer to a reload is (status, body)."""

    def __init__(self, running: Running, path: Path) -> None:
        self.running = running
        self.path = path

    def write(self, engines: list[dict[str, Any]], **sections: Any) -> None:
        """What a reload is to find; in one step, as an editor renames a finished file."""
        other = self.path.with_suffix(".new")
        other.write_text(written(engines, **sections))
        other.rename(self.path)

    async def reload(self) -> tuple[int, dict[str, Any]]:
        async with self.running.http.post(f"{self.running.admin}/api/reload") as response:
            return response.status, await response.json()

    async def change(self, engines: list[dict[str, Any]], **sections: Any) -> list[str]:
        """What a reload of these says that it has changed."""
        self.write(engines, **sections)
        status, body = await self.reload()
        assert status == 200, body
        return body["changed"]

    async def names(self) -> list[str]:
        return [it["name"] for it in (await self.running.state())["engines"]]


def written(engines: list[dict[str, Any]], **sections: Any) -> str:
    limits = {"shutdown_grace": "2s", **sections.pop("limits", {})}
    return yaml.safe_dump(free_config(engines, limits=limits, **sections))


@contextlib.asynccontextmanager
async def reloadable(
    tmp_path: Path, engines: list[dict[str, Any]], poll_s: float = NEVER_S, **sections: Any
) -> AsyncIterator[Reloadable]:
    """A gateway that looks at its file every `poll_s` seconds, and when told to."""

    def file(path: Path) -> ConfigFile:
        return ConfigFile(
            path, lambda old: from_args(path=path, instead_of=old), poll_s=poll_s, settle_s=poll_s / 2
        )

    async with running(tmp_path, engines, file=file, **sections) as it:
        yield Reloadable(it, tmp_path / "gateway.yaml")
