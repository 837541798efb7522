"""What is started is bound to a core, waited for, and ended with all it started."""

import os
import signal
import sys
from pathlib import Path

import pytest

from gateway.bench.relay.processes import NotReady, Ports, pinned, process, wait_until_it_answers

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="only Linux pins processes")


def test_a_process_runs_on_its_core_and_the_caller_keeps_its_own(tmp_path: Path) -> None:
    before = os.sched_getaffinity(0)
    cpu = max(before)

    with process(["/bin/sleep", "60"], cpu, tmp_path / "log") as child:
        assert os.sched_getaffinity(child.pid) == {cpu}
        assert os.sched_getaffinity(0) == before

    assert child.returncode == -signal.SIGTERM


def test_pinning_ends_with_an_error_too() -> None:
    before = os.sched_getaffinity(0)

    with pytest.raises(KeyError), pinned(min(before)):
        raise KeyError

    assert os.sched_getaffinity(0) == before


def test_a_process_that_ends_is_not_waited_for_and_its_last_words_are_told(tmp_path: Path) -> None:
    log = tmp_path / "log"

    with (
        process(["/bin/sh", "-c", "echo no such option >&2; exit 3"], 0, log) as child,
        pytest.raises(NotReady, match="ended with 3: no such option"),
    ):
        wait_until_it_answers(child, Ports(19900).take(), log)


def test_a_process_that_never_answers_is_given_up(tmp_path: Path) -> None:
    log = tmp_path / "log"

    with (
        process(["/bin/sleep", "60"], 0, log) as child,
        pytest.raises(NotReady, match="did not answer within 0 s: it wrote nothing"),
    ):
        wait_until_it_answers(child, Ports(19900).take(), log, limit_s=0)


def test_ports_are_given_once() -> None:
    ports = Ports(19900)
    taken = [ports.take() for _ in range(5)]

    assert len(set(taken)) == 5
    assert min(taken) >= 19900
