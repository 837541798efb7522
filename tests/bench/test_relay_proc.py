"""CPU time and memory of a process and its descendants."""

import os
import sys
import time
from pathlib import Path

import pytest

from gateway.bench.relay import proc

TICK_S = 1 / os.sysconf("SC_CLK_TCK")


def a_process(
    root: Path, pid: int, *, children: str = "", ticks: tuple[int, int] = (0, 0), kib: int = 0
) -> None:
    folder = root / str(pid)
    task = folder / "task" / str(pid)
    task.mkdir(parents=True)
    (task / "children").write_text(children)
    before = "S 1 1 1 0 -1 4194560 100 0 0 0"
    (folder / "stat").write_text(f"{pid} (odd ) name) {before} {ticks[0]} {ticks[1]} 0 0 20 0 1\n")
    (folder / "status").write_text(f"Name:\todd\nVmRSS:\t   {kib} kB\nThreads:\t1\n")


@pytest.fixture
def root(tmp_path: Path) -> Path:
    a_process(tmp_path, 10, children="11 12 ", ticks=(5, 7), kib=100)
    a_process(tmp_path, 11, children="13", ticks=(100, 1), kib=20)
    a_process(tmp_path, 13, ticks=(1000, 0), kib=3)
    a_process(tmp_path, 99, ticks=(9, 9), kib=9)
    return tmp_path


def test_cpu_time_is_of_the_whole_family(root: Path) -> None:
    assert proc.cpu_s(10, root) == pytest.approx(1113 * TICK_S)


def test_memory_is_of_the_whole_family(root: Path) -> None:
    assert proc.rss_bytes(10, root) == 123 * 1024


def test_a_process_that_is_gone_has_used_nothing(root: Path) -> None:
    assert proc.cpu_s(12, root) == 0
    assert proc.rss_bytes(12, root) == 0


def test_the_cpu_has_a_name(tmp_path: Path) -> None:
    nothing = proc.cpu_model(tmp_path)
    (tmp_path / "cpuinfo").write_text("processor\t: 0\nmodel name\t: Some CPU @ 2GHz\n")

    assert nothing == "unknown"
    assert proc.cpu_model(tmp_path) == "Some CPU @ 2GHz"


def test_work_is_all_time_but_idle_and_waiting_and_counts_guests_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stat = tmp_path / "stat"
    stat.write_text("cpu  10 1 2 1000 500 3 4 5 6 7\ncpu0 1 1 1 1 1 1 1 1 1 1\n")
    later = "cpu  30 2 4 1900 900 4 6 8 16 17\n"
    monkeypatch.setattr(time, "sleep", lambda _: stat.write_text(later))

    assert proc.busy_cpus(0.5, tmp_path) == pytest.approx((20 + 1 + 2 + 1 + 2 + 3) * TICK_S / 0.5)


@pytest.mark.skipif(sys.platform != "linux", reason="/proc is Linux's")
def test_this_process_can_be_read() -> None:
    assert proc.cpu_s(os.getpid()) > 0
    assert proc.rss_bytes(os.getpid()) > 1_000_000
