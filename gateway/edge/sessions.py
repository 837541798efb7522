"""Sessions as they are shown: what each asked for and what it got from cache."""

from collections import OrderedDict
from collections.abc import Sequence

from msgspec import Struct, field

from gateway.core.request import Record

MAX_SESSIONS = 1_024
MAX_SHOWN = 200
MAX_ENGINES = 16


class SessionRow(Struct):
    """`session` is a hash. Tokens are sums over `reported_requests`, those whose engine reported its cached
    tokens; they and `hit_rate` are None before the first. `engines` are in the order of their last use, the
    last 16; `engine` is the last. `breaks` are requests that broke a prefix."""

    session: str
    client: str = ""
    model: str = ""
    engine: str = ""
    engines: list[str] = field(default_factory=list)
    workload_class: str = ""
    requests: int = 0
    reported_requests: int = 0
    prompt_tokens: int | None = None
    cached_tokens: int | None = None
    hit_rate: float | None = None
    breaks: int = 0
    first_at: str = ""
    last_at: str = ""


class Sessions:
    """Those used last, 1,024 of them. `ended` puts records away until `flush`."""

    def __init__(self) -> None:
        self._rows: OrderedDict[str, SessionRow] = OrderedDict()
        self._ended: list[Record] = []
        self.ended = self._ended.append

    def came(self, session: int, client: str, is_broken: bool) -> None:
        row = self._row(f"{session:016x}")
        row.client = client
        row.breaks += is_broken

    def flush(self) -> None:
        ended = self._ended.copy()
        self._ended.clear()
        for record in ended:
            if record.session and record.engine:
                self._count(self._row(record.session), record)

    def latest(self) -> Sequence[SessionRow]:
        """At most 200, the last used first."""
        rows = [row for row in reversed(self._rows.values()) if row.requests]
        return rows[:MAX_SHOWN]

    def _row(self, session: str) -> SessionRow:
        row = self._rows.get(session)
        if row is None:
            row = self._rows[session] = SessionRow(session)
            if len(self._rows) > MAX_SESSIONS:
                self._rows.popitem(last=False)
        self._rows.move_to_end(session)
        return row

    def _count(self, row: SessionRow, record: Record) -> None:
        row.requests += 1
        row.model, row.engine, row.workload_class = record.model, record.engine, record.workload_class
        if record.engine in row.engines:
            row.engines.remove(record.engine)
        row.engines = [*row.engines, record.engine][-MAX_ENGINES:]
        row.first_at = row.first_at or record.time
        row.last_at = record.time
        if record.prompt_tokens is not None and record.cached_tokens is not None:
            row.reported_requests += 1
            row.prompt_tokens = (row.prompt_tokens or 0) + record.prompt_tokens
            row.cached_tokens = (row.cached_tokens or 0) + record.cached_tokens
            row.hit_rate = row.cached_tokens / row.prompt_tokens if row.prompt_tokens else None
