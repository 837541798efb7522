"""The systems that are compared: how each is started in front of the engines, and ended again."""

import os
import re
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from importlib.metadata import version
from pathlib import Path

from miniswe_play import EngineTrouble, request_body
from miniswe_trace import Turn

GATEWAY, SGLANG, VLLM, HAPROXY = "gateway", "sglang-router", "vllm-router", "haproxy"
SYSTEMS = (GATEWAY, SGLANG, VLLM, HAPROXY)

FULL_BLOCKS = 2048
"""KV blocks of 128 tokens in which all sessions fit, at the engine script's default."""

ENGINE_START_LIMIT_S = 240.0
ROUTER_START_LIMIT_S = 60.0
SETTLE_S = 3.0
"""Routers answer as soon as one engine is registered; the second follows within this time."""

END_LIMIT_S = 20.0


def engine_command(template: str, *, port: int, kv_port: int, blocks: int, seqs: int) -> list[str]:
    """Raises ValueError for a template with other places than {port}, {kv}, {blocks}, {seqs}."""
    try:
        filled = template.format(port=port, kv=kv_port, blocks=blocks, seqs=seqs)
    except (KeyError, IndexError) as error:
        raise ValueError(
            f"--vllm has an unknown place {error}; known are {{port}}, {{kv}}, {{blocks}}, {{seqs}}"
        ) from None
    return shlex.split(filled)


def system_command(
    name: str, *, port: int, metrics_port: int, engine_urls: Sequence[str], seqs: int, folder: Path
) -> list[str]:
    """Every system at its defaults: no figure is tuned, ours or theirs."""
    if name == GATEWAY:
        engines = [word for url in engine_urls for word in ("--engine", f"{url},slots={seqs}")]
        serve = [sys.executable, "-m", "gateway", "--log-level", "error", "serve", *engines]
        return [*serve, "--listen", f"127.0.0.1:{port}", "--admin", f"127.0.0.1:{metrics_port}"]
    if name == HAPROXY:
        path = folder / "haproxy.cfg"
        path.write_text(haproxy_config(port, engine_urls))
        return [program(name), "-f", str(path)]
    command = [program(name), "launch"] if name == SGLANG else [program(name)]
    command += ["--host", "127.0.0.1", "--port", str(port), "--worker-urls", *engine_urls]
    command += ["--prometheus-host", "127.0.0.1", "--prometheus-port", str(metrics_port)]
    return [*command, "--policy", "cache_aware", "--log-level", "error"]


def haproxy_config(port: int, engine_urls: Sequence[str]) -> str:
    servers = "".join(
        f" server e{index} {url.removeprefix('http://')}\n" for index, url in enumerate(engine_urls)
    )
    return (
        "global\n nbthread 1\ndefaults\n mode http\n timeout connect 5s\n timeout client 300s\n"
        f" timeout server 300s\nlisten l\n bind 127.0.0.1:{port}\n balance roundrobin\n{servers}"
    )


def program(name: str) -> str:
    """A rival's command on PATH. Raises ValueError with the way out if it is not there."""
    found = shutil.which(name)
    if found is None:
        raise ValueError(f"{name} is not on PATH; install it (README.md) or leave it out of --systems")
    return found


def versions(systems: Sequence[str]) -> dict[str, str]:
    return {name: _version(name) for name in systems}


def _version(name: str) -> str:
    if name == GATEWAY:
        return version("prefix-gateway")
    if name == HAPROXY:
        command = [program(name), "-v"]
    else:
        # The console script's own interpreter knows the version of what it starts.
        python = str(Path(program(name)).with_name("python"))
        command = [python, "-c", f"from importlib.metadata import version; print(version('{name}'))"]
    out = subprocess.run(command, capture_output=True, text=True, timeout=30).stdout
    found = re.search(r"\d+\.\d+\S*", out)
    return found[0] if found else "unknown"


@contextmanager
def process(command: Sequence[str], log: Path) -> Iterator[subprocess.Popen[bytes]]:
    """Runs `command` in a process group of its own, so that its children end with it."""
    with log.open("ab") as out:
        child = subprocess.Popen(command, stdout=out, stderr=out, start_new_session=True)
    try:
        yield child
    finally:
        _end(child)


def _end(child: subprocess.Popen[bytes]) -> None:
    for sign in (signal.SIGTERM, signal.SIGKILL):
        try:
            os.killpg(child.pid, sign)
        except ProcessLookupError:
            break
        try:
            child.wait(END_LIMIT_S)
        except subprocess.TimeoutExpired:
            continue


@contextmanager
def engines(commands: Mapping[int, Sequence[str]], folder: Path) -> Iterator[list[str]]:
    """Starts an engine on each port, all at once, waits until they are ready, and gives their addresses."""
    with ExitStack() as stack:
        started = []
        for index, (port, command) in enumerate(commands.items()):
            _must_be_free(port)
            log = folder / f"engine-{index}.log"
            started.append((stack.enter_context(process(command, log)), f"http://127.0.0.1:{port}", log))
        for child, url, log in started:
            wait_for(child, f"{url}/health", None, ENGINE_START_LIMIT_S, log)
        yield [url for _, url, _ in started]


@contextmanager
def system(command: Sequence[str], port: int, log: Path) -> Iterator[str]:
    """Starts one system, waits until it serves, and gives its address."""
    _must_be_free(port)
    url = f"http://127.0.0.1:{port}"
    body = request_body(Turn(prompt="hi", output_tokens=1, think_s=0.0))
    with process(command, log) as child:
        wait_for(child, f"{url}/v1/chat/completions", body, ROUTER_START_LIMIT_S, log)
        time.sleep(SETTLE_S)
        yield url


def wait_for(child: subprocess.Popen[bytes], url: str, body: bytes | None, limit_s: float, log: Path) -> None:
    """Raises EngineTrouble if `child` ends, or does not answer `url` with 200 in time."""
    request = urllib.request.Request(url, body, {"content-type": "application/json"})
    until = time.monotonic() + limit_s
    while time.monotonic() < until:
        if child.poll() is not None:
            raise EngineTrouble(f"what should serve {url} ended with {child.returncode}; see {log}")
        try:
            with urllib.request.urlopen(request, timeout=10) as answer:
                answer.read()
                return
        except (urllib.error.URLError, OSError):
            time.sleep(0.3)
    raise EngineTrouble(f"{url} did not answer within {limit_s:.0f} s; see {log}")


def _must_be_free(port: int) -> None:
    with socket.socket() as probe:
        if probe.connect_ex(("127.0.0.1", port)) == 0:
            raise EngineTrouble(f"port {port} is in use; choose others with --port")
