"""Every engine's connections, while engines come and go."""

from gateway.edge.upstream import Pool


class Pools(dict[str, Pool]):
    """Pools by the engine's name. One that was put away lives until the last answer on it is complete."""

    def __init__(self) -> None:
        super().__init__()
        self._retired: list[Pool] = []

    def put(self, name: str, pool: Pool) -> None:
        """For all requests from now on."""
        self.put_away(name)
        self[name] = pool

    def put_away(self, name: str) -> None:
        pool = self.pop(name, None)
        if pool is not None:
            pool.retire()
            self._retired.append(pool)

    def trim(self) -> None:
        """Close what has been idle too long."""
        for pool in self.values():
            pool.trim()
        if self._retired:
            self._retired = [pool for pool in self._retired if pool.in_use]

    def close(self) -> None:
        for pool in [*self.values(), *self._retired]:
            pool.close()
