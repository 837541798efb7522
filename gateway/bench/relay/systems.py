"""The systems that are compared, each at its defaults: no figure of a rival or of ours is tuned."""

import sys
from pathlib import Path

from msgspec import Struct

DIRECT = "direct"
HAPROXY = "haproxy"
SGLANG = "sglang-router"
VLLM = "vllm-router"
GATEWAY = "gateway"
SYSTEMS = (DIRECT, HAPROXY, SGLANG, VLLM, GATEWAY)

ROUTERS = (SGLANG, VLLM)
"""Both are written in Rust and come from PyPI under these names."""

_HAPROXY_CONFIG = """\
global
  maxconn 4096
  nbthread 1
defaults
  mode http
  timeout connect 5s
  timeout client 60s
  timeout server 60s
frontend f
  bind 127.0.0.1:{port}
  default_backend b
backend b
  server s1 127.0.0.1:{engine}
"""


class Place(Struct, frozen=True, kw_only=True):
    """Where a proxy is to listen, the engine it is to ask, what that may run at once; a folder for files."""

    port: int
    admin_port: int
    engine_port: int
    slots: int
    folder: Path

    @property
    def engine_url(self) -> str:
        return f"http://127.0.0.1:{self.engine_port}"


class System(Struct, frozen=True, kw_only=True):
    """`program`: HAProxy's, or the Python of the rivals' environment; of no use to the others."""

    name: str
    version: str
    program: str = ""

    def command(self, at: Place) -> list[str]:
        """Empty where the load goes to the engine itself. Raises OSError."""
        if self.name == GATEWAY:
            return _gateway(at)
        if self.name == HAPROXY:
            path = at.folder / f"haproxy-{at.port}.cfg"
            path.write_text(_HAPROXY_CONFIG.format(port=at.port, engine=at.engine_port))
            return [self.program, "-f", str(path)]
        if self.name == SGLANG:
            return [self.program, "-m", "sglang_router.launch_router", *_router(at)]
        if self.name == VLLM:
            return [str(Path(self.program).with_name(VLLM)), *_router(at)]
        return []


def _gateway(at: Place) -> list[str]:
    """Everything on, the access log too."""
    serve = [sys.executable, "-m", "gateway", "serve", "--engine", f"{at.engine_url},slots={at.slots}"]
    return [*serve, "--listen", f"127.0.0.1:{at.port}", "--admin", f"127.0.0.1:{at.admin_port}"]


def _router(at: Place) -> list[str]:
    return [
        *("--host", "127.0.0.1", "--port", str(at.port), "--worker-urls", at.engine_url),
        *("--policy", "cache_aware", "--prometheus-port", str(at.admin_port), "--log-level", "error"),
    ]
