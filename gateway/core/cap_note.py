"""What is said of an engine that runs another number of requests at once than its cap says."""

from msgspec import Struct

from gateway.core.engine import Engine


class CapNote(Struct, frozen=True):
    """`cap` is as configured, discovered or assumed, `runs` what was found. `is_kv`: KV memory holds it
    there, and `runs` is None: that varies, and every change would be a line in the log.
    """

    source: str
    cap: int
    runs: int | None
    is_kv: bool = False


def found(engine: Engine) -> int | None:
    """What the engine was found to run at once."""
    typical = engine.caps.kv_typical
    return engine.caps.inferred if typical is None else typical


def cap_note(engine: Engine) -> CapNote | None:
    facts, caps = engine.facts, engine.caps
    if caps.kv_typical is not None:
        return (
            CapNote(facts.slots_source, facts.slots, None, is_kv=True)
            if caps.kv_typical < engine.slots
            else None
        )
    if caps.inferred is None or caps.inferred == facts.slots:
        return None
    is_told = caps.inferred < facts.slots or engine.is_soft
    return CapNote(facts.slots_source, facts.slots, caps.inferred) if is_told else None


def sentence(engine: Engine) -> str:
    """In words, empty where there is nothing to say."""
    note = cap_note(engine)
    if note is None:
        return ""
    runs, report = found(engine) or 0, engine.report
    waiting = report.waiting if report is not None else None
    if waiting is None:
        waiting = max(0, engine.in_flight + engine.cooling_width - runs)
    about = "about " if note.is_kv else ""
    words = f"{note.source} {note.cap}, runs {about}{runs} at once"
    if note.is_kv and report is not None and report.kv_usage is not None:
        words += f", held by KV memory ({report.kv_usage:.0%} used)".replace("%", " %")
    if waiting:
        words += f"; {waiting} request{'s wait' if waiting > 1 else ' waits'} inside it"
    return words
