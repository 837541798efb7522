"""Processes bound to a core of their own, ended with everything they started."""

import http.client
import os
import signal
import subprocess
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from gateway.bench.relay import prompts
from gateway.sim.ports import is_free

PROXY_CPU = 0
LOAD_CPU = 1
"""The load and the mock engine share it."""

READY_LIMIT_S = 40.0
_ASK_EVERY_S = 0.2
_ASK_LIMIT_S = 2.0
_END_LIMIT_S = 5.0
_FIRST_PORT = 19600
_TAIL_BYTES = 2000


class NotReady(Exception):
    """A process ended, or did not answer in time; the message has the end of its log."""


class Ports:
    """Free loopback ports, each given once.

    They lie below the range that Linux takes outgoing connections from, so that no load takes one away.
    """

    def __init__(self, first: int = _FIRST_PORT) -> None:
        self._next = first

    def take(self) -> int:
        while not is_free(self._next):
            self._next += 1
        self._next += 1
        return self._next - 1


@contextmanager
def pinned(cpu: int) -> Iterator[None]:
    """What is started meanwhile runs on this core only, and so does the caller meanwhile."""
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {cpu})
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)


@contextmanager
def process(command: Sequence[str], cpu: int, log: Path) -> Iterator[subprocess.Popen[bytes]]:
    """Runs `command` on `cpu` in a process group of its own. Raises OSError."""
    with log.open("wb") as out, pinned(cpu):
        child = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=out, stderr=out, start_new_session=True
        )
    try:
        yield child
    finally:
        _end(child)


def _end(child: subprocess.Popen[bytes]) -> None:
    for sign in (signal.SIGTERM, signal.SIGKILL):
        try:
            os.killpg(child.pid, sign)
            child.wait(_END_LIMIT_S)
        except (ProcessLookupError, subprocess.TimeoutExpired):
            continue
    child.poll()


def wait_until_it_answers(
    child: subprocess.Popen[bytes], port: int, log: Path, limit_s: float = READY_LIMIT_S
) -> None:
    """Returns once a chat request gets 200. Raises NotReady."""
    end = time.monotonic() + limit_s
    while not _answers(port):
        if child.poll() is not None:
            raise NotReady(f"ended with {child.returncode}: {tail(log)}")
        if time.monotonic() > end:
            raise NotReady(f"did not answer within {limit_s:g} s: {tail(log)}")
        time.sleep(_ASK_EVERY_S)


def _answers(port: int) -> bool:
    asking = http.client.HTTPConnection("127.0.0.1", port, timeout=_ASK_LIMIT_S)
    try:
        headers = {"Content-Type": "application/json"}
        asking.request("POST", "/v1/chat/completions", prompts.short(stream=False), headers)
        return asking.getresponse().status == http.HTTPStatus.OK
    except (OSError, http.client.HTTPException):
        return False
    finally:
        asking.close()


def tail(log: Path) -> str:
    """The end of what a process wrote."""
    try:
        return log.read_bytes()[-_TAIL_BYTES:].decode(errors="replace").strip() or "it wrote nothing"
    except OSError as error:
        return str(error)
