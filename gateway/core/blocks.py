"""Chained hashes of a canonical prompt: equal chains mean equal prompts from the start, under equal seeds."""

from functools import lru_cache
from struct import Struct

from xxhash import xxh3_64_intdigest

BLOCK_BYTES = 256

# A quarter less time than slices, one for each block.
_blocks = Struct(f"{BLOCK_BYTES}s").iter_unpack


def chain(canonical: bytes, model: str, salt: str = "") -> tuple[int, ...]:
    """One hash for each full `BLOCK_BYTES` of `canonical`, each seeded by the one before.

    `model` (a LoRA is its own model name) and the request's `cache_salt` seed the first, as engines keep
    their KV blocks apart by both (vLLM `v1/core/kv_cache_utils.py`). A trailing partial block has no
    hash: engines cache full blocks only.
    """
    parent, digest = _seed(model, salt), xxh3_64_intdigest
    full = canonical[: len(canonical) // BLOCK_BYTES * BLOCK_BYTES]
    return tuple([parent := digest(block, parent) for (block,) in _blocks(full)])


@lru_cache(maxsize=256)
def _seed(model: str, salt: str) -> int:
    return xxh3_64_intdigest(f"{len(model)}:{model}{salt}".encode("utf-8", "surrogatepass"))
