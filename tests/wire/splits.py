"""Bytes cut at any places, as a network does it."""

from collections.abc import Iterator
from itertools import pairwise

from hypothesis import strategies as st


def pieces(data: bytes, cuts: list[int]) -> Iterator[bytes]:
    edges = [0, *sorted({cut for cut in cuts if 0 < cut < len(data)}), len(data)]
    for start, end in pairwise(edges):
        yield data[start:end]


def ways(data: bytes) -> Iterator[list[bytes]]:
    """Whole, byte by byte, and in a few odd sizes."""
    for size in (len(data), 1, 2, 3, 7, 64):
        yield in_sizes(data, size or 1)


def in_sizes(data: bytes, size: int) -> list[bytes]:
    return [data[start : start + size] for start in range(0, len(data), size)]


cut_lists = st.lists(st.integers(min_value=1, max_value=3000), max_size=40)
