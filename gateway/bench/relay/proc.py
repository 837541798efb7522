"""What Linux tells of processes and of the machine, from /proc."""

import os
import time
from collections.abc import Iterator
from pathlib import Path

_PROC = Path("/proc")
_TICK_S = 1 / os.sysconf("SC_CLK_TCK")
_UTIME, _STIME = 11, 12
"""Fields of /proc/PID/stat after the name in brackets, from 0 (proc(5))."""

_IDLE, _IOWAIT, _GUEST = 3, 4, 8
"""Fields of the first line of /proc/stat (proc(5))."""


def cpu_s(pid: int, proc: Path = _PROC) -> float:
    """CPU time so far of a process and those that descend from it; of one that has ended, nothing."""
    ticks = 0
    for one in _family(pid, proc):
        fields = _read(proc / str(one) / "stat").rpartition(")")[2].split()
        if fields:
            ticks += int(fields[_UTIME]) + int(fields[_STIME])
    return ticks * _TICK_S


def rss_bytes(pid: int, proc: Path = _PROC) -> int:
    """Resident memory of a process and those that descend from it."""
    total_kib = 0
    for one in _family(pid, proc):
        for line in _read(proc / str(one) / "status").splitlines():
            if line.startswith("VmRSS:"):
                total_kib += int(line.split()[1])
    return total_kib * 1024


def cpu_model(proc: Path = _PROC) -> str:
    for line in _read(proc / "cpuinfo").splitlines():
        name, _, value = line.partition(":")
        if name.strip() in ("model name", "Hardware", "Model"):
            return value.strip()
    return "unknown"


def busy_cpus(for_s: float, proc: Path = _PROC) -> float:
    """How many CPUs were at work on average while this waited."""
    before = _busy_ticks(proc)
    time.sleep(for_s)
    return (_busy_ticks(proc) - before) * _TICK_S / for_s


def _busy_ticks(proc: Path) -> int:
    ticks = [int(field) for field in _read(proc / "stat").partition("\n")[0].split()[1:]]
    # Guest time, after the first eight, is in user time already.
    return sum(ticks[:_IDLE]) + sum(ticks[_IOWAIT + 1 : _GUEST])


def _family(pid: int, proc: Path) -> Iterator[int]:
    todo = [pid]
    while todo:
        one = todo.pop()
        yield one
        for children in proc.glob(f"{one}/task/*/children"):
            todo += map(int, _read(children).split())


def _read(path: Path) -> str:
    """Empty if the process is gone."""
    try:
        return path.read_text()
    except OSError:
        return ""
