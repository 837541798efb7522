"""What other parts add to the admin port: pages of JSON, calls, and fields of the state."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field


class Missing(Exception):
    """What was asked for does not exist; the message says what does."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Views:
    """Each is called on the event loop; what it returns becomes JSON.

    `gets` and `posts` go by path. The former are given the query (the last of equal names), the latter the
    body. Both raise `ValueError` with a message for what they cannot use, `Missing` for what is not there.
    What takes a while returns an awaitable of it.
    `state` are fields of `/api/state`.
    """

    gets: Mapping[str, Callable[[Mapping[str, str]], object]] = field(default_factory=dict)
    posts: Mapping[str, Callable[[bytes], object]] = field(default_factory=dict)
    state: Mapping[str, Callable[[], object]] = field(default_factory=dict)


def together(*views: Views) -> Views:
    """All of them as one."""
    return Views(
        gets={path: view for it in views for path, view in it.gets.items()},
        posts={path: view for it in views for path, view in it.posts.items()},
        state={name: view for it in views for name, view in it.state.items()},
    )
