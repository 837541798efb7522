"""Which engines there are: they come and go while requests run and wait."""

from collections.abc import Iterable, Iterator, Mapping

from gateway.core import refusals
from gateway.core.admission import Queue
from gateway.core.engine import Engine
from gateway.core.entry import Entry
from gateway.core.index import Index
from gateway.core.pairing import Pairing
from gateway.core.placing import Placing
from gateway.core.request import Reason


class Fleet:
    """The one that changes the scheduler's `engines`, for all who share them.

    `leaving` were removed while requests ran on them. Nobody else knows of these any more, so that another
    engine may have the name; each is forgotten with its last request.
    """

    def __init__(
        self,
        engines: dict[str, Engine],
        queue: Queue,
        entries: Mapping[int, Entry],
        index: Index,
        placing: Placing,
        pairing: Pairing,
        want: dict[str, int],
    ) -> None:
        self.leaving: list[Engine] = []
        self._engines = engines
        self._queue = queue
        self._entries = entries
        self._index = index
        self._placing = placing
        self._pairing = pairing
        self._want = want

    def has(self, engine: Engine) -> bool:
        """Whether it is in use: not one that is leaving, whatever its name."""
        return self._engines.get(engine.name) is engine

    def change(self, remove: Iterable[str], add: Iterable[Engine], now: float) -> list[int]:
        """Returns the keys of those who waited for one that is gone, and now wait for none in particular."""
        moved = [key for name in remove for key in self._remove(name, now)]
        for engine in add:
            self._add(engine)
        self._placing.fleet_changed()
        return moved

    def resized(self, engines: set[Engine]) -> None:
        """These have another number of slots than before; forgets them."""
        while engines:
            engine = engines.pop()
            if self.has(engine):
                self._index.resize(engine)

    def released(self, engine: Engine) -> None:
        """A request is over on an engine that is leaving."""
        if not engine.leases:
            self.leaving.remove(engine)

    def orphans(self, now: float) -> Iterator[tuple[int, tuple[Reason, str]]]:
        """Takes out queued requests that no engine can serve any more, with what to tell them; those that
        still can look elsewhere."""
        for waiting in list(self._queue):
            key = waiting.request.key
            entry = self._entries[key]
            if not self._placing.widen(entry):
                self._pairing.take(key, now)
                yield key, refusals.nobody(waiting.models, self._engines.values(), entry.excluded)
                continue
            waiting.models = entry.models
            if waiting.engine and not any(map(self._engines[waiting.engine].serves, waiting.models)):
                self._pairing.wait_for(waiting, "", "")
                self._pairing.expect(key)

    def _remove(self, name: str, now: float) -> list[int]:
        moved = self._pairing.leave(name, now)
        engine = self._engines.pop(name)
        del self._want[name]
        self._index.remove(name)
        engine.leave()
        if engine.leases:
            self.leaving.append(engine)
        return moved

    def _add(self, engine: Engine) -> None:
        assert engine.name not in self._engines, engine.name
        back = next((it for it in self.leaving if it.url == engine.url), None)
        if back is not None:
            # What still runs there counts against its slots.
            self.leaving.remove(back)
            back.come_back(engine.name)
            engine = back
        self._engines[engine.name] = engine
        self._want[engine.name] = engine.in_flight
        self._index.fit(engine)
        for entry in self._entries.values():
            # It may have failed an engine that had the name before.
            entry.excluded -= {engine.name}
