"""What is found out about engines' caps, in the log: once, and again when the number is another."""

import logging

from gateway.core.cap_note import CapNote, cap_note, sentence
from gateway.core.engine import Engine


class CapLog:
    def __init__(self, log: logging.Logger) -> None:
        self._log = log
        self._told: dict[str, CapNote] = {}

    def tell(self, engine: Engine) -> None:
        """A warning where requests wait inside the engine because of it: its cap is a hard one."""
        note, name = cap_note(engine), engine.name
        if note is None:
            self._told.pop(name, None)
        elif note != self._told.get(name):
            self._told[name] = note
            level = logging.INFO if engine.is_soft else logging.WARNING
            self._log.log(level, "engine %s: %s", name, sentence(engine))
