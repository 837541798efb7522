"""Chains of blocks by letters, and caches that hold some."""

from xxhash import xxh3_64_intdigest

from gateway.core.prefix import PooledCache


def blocks(path: str) -> tuple[int, ...]:
    """A chain as the hashes make it: equal at i only where all before is equal. One block a letter."""
    return tuple(xxh3_64_intdigest(path[: end + 1].encode()) for end in range(len(path)))


def cache_with(bound: int, *paths: str) -> PooledCache:
    """Holds `paths`, used in this order."""
    cache = PooledCache(bound)
    for key, path in enumerate(paths, 1000):
        cache.begin(key, blocks(path))
        cache.confirm(key)
        cache.end(key)
    return cache


def leaf(cache: PooledCache, prompt: tuple[int, ...]) -> object:
    """The run of blocks that holds the last resident one of a prompt."""
    found = cache.sight(prompt)
    return None if found is None else found.leaf


def finish(cache: PooledCache, key: int, path: str, cached_blocks: int) -> None:
    """A request from its grant to its end, of which the engine had so many blocks."""
    cache.begin(key, blocks(path))
    cache.confirm(key)
    cache.delivered(key, cached_blocks, cached_blocks)
    cache.end(key)
