"""KV events decide where they tell of a prompt; elsewhere the index believes on."""

from core_values import engine, facts, request, text, usage

from gateway.core.engine import Engine
from gateway.core.events import Cleared, Removed, Stored
from gateway.core.index import Index
from gateway.core.request import Grant, Request, Route

HASHES = list(range(1, 9))


def blocks_of_64(kv_tokens: int | None = None) -> Engine:
    made = engine("a")
    made.facts = facts(block_tokens=64, kv_tokens=kv_tokens)
    return made


def index_of(a: Engine) -> Index:
    index = Index({a.name: a})
    index.follow(a)
    return index


def grant_of(it: Request) -> Grant:
    return Grant(
        key=it.key,
        engine="a",
        model=it.model,
        route=Route.ONLY,
        attempt=1,
        width=1,
        predicted_tokens=0,
        best_tokens=0,
        queue_s=0.0,
    )


def ran(index: Index, a: Engine, it: Request, prompt: int, hashes: list[int], cached: int = 0) -> None:
    """Its blocks are stored and it ends, at 2 s."""
    index.begin("a", it, "m", 0.0)
    index.hear("a", [Stored(hashes, HASHES[cached // 64 - 1] if cached else None)], 1.0)
    index.delivered(a, it, grant_of(it), usage(prompt, cached), 2.0)
    index.hear("a", [], 2.0)


def resident(index: Index, a: Engine, it: Request) -> tuple[int, int]:
    seen = index.match(a, index.prompt(it, "m"))
    return seen.resident_tokens, seen.pending_tokens


def test_without_events_the_index_believes() -> None:
    a = blocks_of_64()
    index = Index({"a": a})
    first = request(1, text(512, "x"))

    ran(index, a, first, 512, HASHES)
    index.lose("a")
    index.unfollow("a")

    assert resident(index, a, request(2, text(1024, "x"))) == (512, 0)


def test_what_events_tell_overrules_what_was_believed() -> None:
    a = blocks_of_64()
    index = index_of(a)
    ran(index, a, request(1, text(512, "x")), 513, HASHES)
    following = request(2, text(1024, "x"))
    assert resident(index, a, following) == (512, 0)

    index.hear("a", [Removed([8, 7])], 3.0)

    assert resident(index, a, following) == (384, 0)


def test_what_was_believed_gone_is_there_if_events_say_so() -> None:
    a = blocks_of_64(kv_tokens=512)
    index = index_of(a)
    ran(index, a, request(1, text(512, "x")), 513, HASHES)
    ran(index, a, request(2, text(512, "y")), 513, [11, 12, 13, 14, 15, 16, 17, 18])

    assert resident(index, a, request(3, text(1024, "x"))) == (512, 0)


def test_beyond_what_events_know_the_index_believes_if_all_before_it_is_there() -> None:
    a = blocks_of_64()
    index = index_of(a)
    ran(index, a, request(1, text(512, "x")), 513, HASHES)
    # Nothing tells of the blocks of this one.
    second = request(2, text(768, "x"))
    index.begin("a", second, "m", 3.0)
    index.delivered(a, second, grant_of(second), usage(768, 512), 4.0)
    following = request(3, text(1024, "x"))
    assert resident(index, a, following) == (768, 0)

    index.hear("a", [Removed([8])], 5.0)

    assert resident(index, a, following) == (448, 0)


def test_what_is_being_computed_is_pending_all_the_same() -> None:
    a = blocks_of_64()
    index = index_of(a)
    ran(index, a, request(1, text(512, "x")), 513, HASHES)
    index.begin("a", request(2, text(1024, "x")), "m", 3.0)
    following = request(3, text(1024, "x"))
    assert resident(index, a, following) == (512, 512)

    index.hear("a", [Removed([8])], 4.0)

    assert resident(index, a, following) == (448, 576)


def test_events_know_a_prompt_that_the_index_has_forgotten() -> None:
    a = blocks_of_64()
    index = index_of(a)
    ran(index, a, request(1, text(512, "x")), 513, HASHES)
    index._caches["a"].forget()

    assert resident(index, a, request(2, text(1024, "x"))) == (512, 0)


def test_a_match_is_another_one_once_events_change_it() -> None:
    a = blocks_of_64()
    index = index_of(a)
    ran(index, a, request(1, text(512, "x")), 513, HASHES)
    before = index.version("a")

    index.hear("a", [Stored([99])], 3.0)
    assert index.version("a") == before

    index.hear("a", [Cleared()], 4.0)
    assert index.version("a") > before


def test_a_request_whose_blocks_are_found_later_makes_another_match() -> None:
    a = blocks_of_64()
    index = index_of(a)
    index.place("a", 0.0)
    first = request(1, text(512, "x"))
    index.begin("a", first, "m", 0.0)
    index.hear("a", [Stored(HASHES)], 1.0)
    index.delivered(a, first, grant_of(first), usage(513), 2.0)
    before = index.version("a")

    index.place("a", 2.0)
    index.place("b", 2.0)

    assert index.version("a") > before
    assert index.residences["a"].placed == 1


def test_lost_events_decide_nothing() -> None:
    a = blocks_of_64()
    index = index_of(a)
    ran(index, a, request(1, text(512, "x")), 513, HASHES)
    index.hear("a", [Cleared()], 3.0)
    before = index.version("a")

    index.lose("a")

    assert resident(index, a, request(2, text(1024, "x"))) == (512, 0)
    assert index.version("a") > before


def test_an_engine_that_restarted_or_is_not_followed_any_more_is_believed() -> None:
    a = blocks_of_64()
    index = index_of(a)
    ran(index, a, request(1, text(512, "x")), 513, HASHES)
    index.forget("a")
    assert resident(index, a, request(2, text(1024, "x"))) == (0, 0)

    ran(index, a, request(3, text(512, "x")), 513, HASHES)
    index.hear("a", [Cleared()], 3.0)
    index.unfollow("a")
    assert resident(index, a, request(4, text(1024, "x"))) == (512, 0)


def test_a_request_that_fails_is_not_looked_for() -> None:
    a = blocks_of_64()
    index = index_of(a)
    index.begin("a", request(1, text(512, "x")), "m", 0.0)

    index.end("a", 1, 1.0)

    assert index.residences["a"].place(9.0) is False


def test_with_an_engine_goes_what_its_events_told() -> None:
    a = blocks_of_64()
    index = index_of(a)

    index.remove("a")
    index.unfollow("a")

    assert not index.residences


def test_what_events_told_may_be_reported_less_by_no_more_than_a_part_of_a_block() -> None:
    a = blocks_of_64()
    index = index_of(a)
    ran(index, a, request(1, text(512, "x")), 513, HASHES)
    index.hear("a", [Removed([8])], 3.0)
    seen = index.match(a, index.prompt(request(2, text(1024, "x")), "m"))
    assert (seen.resident_tokens, seen.held_tokens, seen.known_tokens) == (448, 448, 448)
    assert seen.may_be(385)
    assert not seen.may_be(384)
