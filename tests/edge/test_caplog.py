import logging

import pytest

from gateway.core.engine import Engine, Facts, SlotSource
from gateway.edge.caplog import CapLog


def an_engine(slots: int, source: SlotSource) -> Engine:
    made = Engine("a", "http://a:8000")
    made.facts = Facts(models=("m",), slots=slots, slots_source=source)
    return made


def test_what_is_found_is_logged_once_and_again_with_another_number(caplog: pytest.LogCaptureFixture):
    caplog.set_level(logging.INFO)
    log, a = CapLog(logging.getLogger("caps")), an_engine(16, SlotSource.CONFIGURED)
    log.tell(a)
    a.caps.proved(4)
    log.tell(a)
    a.lease(1, 5, 100, 0.0)
    log.tell(a)
    a.caps.proved(6)
    log.tell(a)
    assert [(it.levelname, it.getMessage()) for it in caplog.records] == [
        ("WARNING", "engine a: configured 16, runs 4 at once"),
        ("WARNING", "engine a: configured 16, runs 6 at once"),
    ]


def test_it_is_logged_anew_after_it_was_forgotten(caplog: pytest.LogCaptureFixture):
    caplog.set_level(logging.INFO)
    log, a = CapLog(logging.getLogger("caps")), an_engine(4, SlotSource.ASSUMED)
    for _ in range(2):
        a.caps.proved(12)
        log.tell(a)
        a.restarted()
        log.tell(a)
    assert [(it.levelname, it.getMessage()) for it in caplog.records] == [
        ("INFO", "engine a: assumed 4, runs 12 at once")
    ] * 2
