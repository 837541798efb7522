"""How far an exchange has come; `exchange` says what leads from one to the next."""

from enum import Enum


class State(Enum):
    WAITING = "waiting for a grant"
    CONNECTING = "connecting"
    SENT = "sent, no answer yet"
    HELD = "stream began, no event yet"
    RELAYING = "relaying"
    DONE = "done"
