import ctypes
import logging

from gateway.edge.allocator import keep_freed_memory


def test_a_c_library_without_such_a_setting_is_left_alone(monkeypatch):
    monkeypatch.setattr(ctypes, "CDLL", lambda name: object())
    keep_freed_memory(logging.getLogger("test"))


def test_a_setting_that_is_refused_is_said(monkeypatch, caplog):
    class Refusing:
        def mallopt(self, parameter, value):
            return 0

    monkeypatch.setattr(ctypes, "CDLL", lambda name: Refusing())
    with caplog.at_level(logging.DEBUG):
        keep_freed_memory(logging.getLogger("test"))
    assert "does not keep freed memory" in caplog.text
