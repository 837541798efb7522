"""The load: wrk, which tells its figures through a script of ours instead of a text for people."""

import subprocess
from collections.abc import Sequence
from pathlib import Path

import msgspec
from msgspec import Struct

from gateway.bench.relay.errors import RelayError
from gateway.bench.relay.processes import LOAD_CPU, pinned

_MARK = "relay-figures "
_REQUEST_TIMEOUT_S = 30
_PATIENCE_S = 60
"""wrk ends by itself after its duration; this much later it hangs."""

_SCRIPT = """\
wrk.method = "POST"
wrk.headers["Content-Type"] = "application/json"
wrk.body = [==[{body}]==]
done = function(summary, latency, requests)
  local e = summary.errors
  io.write(string.format('\\n{mark}{{"requests":%d,"duration_us":%d,"p50_us":%d,"p99_us":%d,"connect":%d,'
    .. '"read":%d,"write":%d,"timeout":%d,"status":%d}}\\n', summary.requests, summary.duration,
    latency:percentile(50), latency:percentile(99), e.connect, e.read, e.write, e.timeout, e.status))
end
"""


class Load(Struct, frozen=True, kw_only=True):
    """What wrk counted. `connect`, `read`, `write` and `timeout` are socket errors, `status` are answers of
    400 and above; latencies are of all answers."""

    requests: int
    duration_us: int
    p50_us: int
    p99_us: int
    connect: int
    read: int
    write: int
    timeout: int
    status: int

    @property
    def per_s(self) -> float:
        return self.requests / self.duration_us * 1e6 if self.duration_us else 0.0

    @property
    def bad(self) -> int:
        return self.connect + self.read + self.write + self.timeout + self.status


class Wrk:
    """wrk at `program` with the given body, its script kept as `script`."""

    def __init__(self, program: str, script: Path, body: str) -> None:
        self._program = program
        self._script = script
        script.write_text(_SCRIPT.format(body=body, mark=_MARK))

    def run(self, port: int, *, connections: int, seconds: int) -> Load:
        """Raises RelayError if wrk fails or hangs."""
        command = [
            *(self._program, "-t1", f"-c{connections}", f"-d{seconds}s"),
            *("--timeout", f"{_REQUEST_TIMEOUT_S}s", "-s", str(self._script)),
            f"http://127.0.0.1:{port}/v1/chat/completions",
        ]
        return parse(_output(command, seconds + _PATIENCE_S))


def parse(output: str) -> Load:
    """The figures in wrk's output. Raises RelayError if there are none."""
    for line in output.splitlines():
        if line.startswith(_MARK):
            try:
                return msgspec.json.decode(line.removeprefix(_MARK), type=Load)
            except msgspec.MsgspecError as error:
                raise RelayError(f"wrk printed figures that cannot be read: {error}: {line}") from None
    raise RelayError(f"wrk printed no figures: {output.strip() or 'nothing at all'}")


def _output(command: Sequence[str], limit_s: float) -> str:
    with pinned(LOAD_CPU):
        child = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    try:
        out, _ = child.communicate(timeout=limit_s)
    except subprocess.TimeoutExpired:
        raise RelayError(f"wrk did not end within {limit_s:g} s: {' '.join(command)}") from None
    finally:
        child.kill()
        child.wait()
    return out
