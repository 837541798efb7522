import pytest
from core_values import engine, facts, request, text, usage
from msgspec import structs

from gateway.core.engine import Engine, Residency
from gateway.core.index import (
    DEFAULT_BYTES_PER_TOKEN,
    HOST_COPY_TOKENS,
    UNKNOWN_BOUND_TOKENS,
    Index,
)
from gateway.core.lengths import Lengths
from gateway.core.request import Grant, Request, Route, Usage


def index_of(*engines: Engine) -> Index:
    return Index({it.name: it for it in engines})


def grant_of(it: Request, predicted: int = 0) -> Grant:
    return Grant(
        key=it.key,
        engine="a",
        model=it.model,
        route=Route.ONLY,
        attempt=1,
        width=1,
        predicted_tokens=predicted,
        best_tokens=predicted,
        queue_s=0.0,
    )


def ran(index: Index, a: Engine, it: Request, used: Usage, predicted: int = 0) -> None:
    index.begin(a.name, it, "m", 0.0)
    index.delivered(a, it, grant_of(it, predicted), used, 0.0)
    index.end(a.name, it.key, 0.0)


def tokens(index: Index, a: Engine, it: Request, model: str) -> tuple[int, int, int]:
    """(prompt, resident, pending)."""
    seen = index.match(a, index.prompt(it, model))
    return seen.prompt_tokens, seen.resident_tokens, seen.pending_tokens


def test_a_prompt_that_nobody_has_is_all_uncached() -> None:
    a = engine()
    assert tokens(index_of(a), a, request(1, text(1000, "x")), "m") == (1000, 0, 0)


def test_a_prompt_without_blocks_has_at_least_one_token() -> None:
    a = engine()
    assert tokens(index_of(a), a, request(1, b"hi"), "m") == (1, 0, 0)
    assert tokens(index_of(a), a, request(1, b""), "m") == (1, 0, 0)


def test_matches_are_in_tokens_and_apart_by_resident_and_pending() -> None:
    a = engine()
    index = index_of(a)
    prompt = text(1024, "x")
    index.begin("a", request(1, prompt[: 640 * 4]), "m", 0.0)
    index.confirm("a", 1, 0.0)
    index.begin("a", request(2, prompt[: 960 * 4]), "m", 0.0)
    assert tokens(index, a, request(3, prompt), "m") == (1024, 640, 320)


def test_the_last_token_is_never_cached() -> None:
    a = engine()
    index = index_of(a)
    index.begin("a", request(1, text(640, "x")), "m", 0.0)
    index.confirm("a", 1, 0.0)
    assert tokens(index, a, request(2, text(640, "x")), "m") == (640, 639, 0)


def test_matches_are_floored_to_the_engines_own_block() -> None:
    a = engine()
    a.facts = facts(block_tokens=16)
    index = index_of(a)
    index.begin("a", request(1, text(640, "x")), "m", 0.0)
    index.confirm("a", 1, 0.0)
    assert tokens(index, a, request(2, text(640, "x")), "m") == (640, 624, 0)


def test_prompts_that_go_on_from_the_same_conversation_have_one_leaf() -> None:
    a = engine()
    index = index_of(a)
    for key, of in ((1, "x"), (2, "y")):
        index.begin("a", request(key, text(640, of)), "m", 0.0)
        index.confirm("a", key, 0.0)
        index.end("a", key, 0.0)

    def leaf(prompt: bytes) -> object:
        return index.match(a, index.prompt(request(9, prompt), "m")).leaf

    assert leaf(text(640, "x") + text(90, "p")) is leaf(text(640, "x") + text(90, "q"))
    assert leaf(text(640, "x")) is not leaf(text(640, "y"))
    assert leaf(text(640, "z")) is None
    assert leaf(b"short") is None


def test_what_a_prompt_displaces_is_counted_in_blocks_of_its_bytes() -> None:
    a = engine()
    a.facts = facts(kv_tokens=1024)
    index = index_of(a)
    index.begin("a", request(1, text(640, "x")), "m", 5.0)
    index.confirm("a", 1, 5.0)
    index.end("a", 1, 5.0)
    assert index.displaces("a", (1024 - 640) * 4 + 255, (), 9.0) is None
    assert index.displaces("a", (1024 - 640) * 4 + 256, (), 9.0) == 5.0


def test_an_engine_with_a_prompt_in_each_slot_displaces_nothing_that_is_counted() -> None:
    a = engine()
    a.facts = facts(residency=Residency.SLOTS)
    assert index_of(a).displaces("a", 1e9, (), 9.0) is None


def test_a_request_without_blocks_is_in_no_cache() -> None:
    a = engine()
    index = index_of(a)
    index.begin("a", request(1, b"short"), "m", 0.0)
    index.confirm("a", 1, 0.0)
    index.end("a", 1, 0.0)
    assert index.size("a")[0] == 0


def test_bytes_per_token_are_learned_for_each_model() -> None:
    a = engine()
    index = index_of(a)
    ran(index, a, request(1, text(640, "x")), usage(1280))
    assert index.bytes_per_token(request(2), "m") == 2.0
    assert index.bytes_per_token(request(2, model="other"), "other") == DEFAULT_BYTES_PER_TOKEN
    ran(index, a, request(3, text(640, "x")), usage(640))
    # Sums of bytes and tokens, of which the former count a fiftieth less.
    assert index.bytes_per_token(request(4), "m") == pytest.approx(2560 * 1.98 / (1280 * 0.98 + 640))


def test_a_ratio_beyond_belief_is_clamped() -> None:
    a = engine()
    index = index_of(a)
    ran(index, a, request(1, text(640, "x")), usage(100_000))
    assert index.bytes_per_token(request(2), "m") == 1.0
    ran(index, a, request(3, text(10_000, "x"), model="n"), usage(40))
    assert index.bytes_per_token(request(4, model="n"), "n") == 16.0


def test_token_ids_have_their_own_size_and_teach_nothing() -> None:
    a = engine()
    index = index_of(a)
    ran(index, a, request(1, text(640, "x"), token_ids=True), usage(100))
    assert index.bytes_per_token(request(2), "m") == DEFAULT_BYTES_PER_TOKEN
    ran(index, a, request(3, text(640, "x")), usage(1280))
    assert index.bytes_per_token(request(4, token_ids=True), "m") == 4.0


def test_several_prompts_in_one_request_teach_nothing() -> None:
    a = engine()
    index = index_of(a)
    ran(index, a, structs.replace(request(1, text(640, "x")), prompts=2), usage(1280))
    assert index.bytes_per_token(request(2), "m") == DEFAULT_BYTES_PER_TOKEN


def test_unknown_and_tiny_prompt_counts_teach_nothing() -> None:
    a = engine()
    index = index_of(a)
    ran(index, a, request(1, text(640, "x")), Usage())
    ran(index, a, request(2, text(640, "x")), usage(31))
    ran(index, a, request(3, b"no block"), usage(640))
    assert index.bytes_per_token(request(4), "m") == DEFAULT_BYTES_PER_TOKEN


def test_an_answer_that_came_without_a_first_token_confirms_its_prompt() -> None:
    a = engine()
    index = index_of(a)
    ran(index, a, request(1, text(640, "x")), Usage())
    assert tokens(index, a, request(2, text(700, "x")), "m")[1] == 640


def test_the_bound_follows_the_engines_kv_and_the_learned_ratio() -> None:
    a = engine()
    a.facts = facts(kv_tokens=6400)
    index = index_of(a)
    assert index.size("a") == (0, 100)
    ran(index, a, request(1, text(640, "x")), usage(1280))
    assert index.size("a")[1] == 50


def test_an_unknown_kv_size_has_a_bound_all_the_same() -> None:
    assert index_of(engine()).size("a")[1] == UNKNOWN_BOUND_TOKENS * 4 // 256


def test_a_restart_forgets() -> None:
    a = engine()
    index = index_of(a)
    ran(index, a, request(1, text(640, "x")), Usage())
    index.forget("a")
    assert index.size("a")[0] == 0


def test_new_facts_of_the_same_kind_keep_what_is_known() -> None:
    a = engine()
    index = index_of(a)
    ran(index, a, request(1, text(640, "x")), Usage())
    a.facts = facts(kv_tokens=640)
    index.fit(a)
    assert index.size("a") == (10, 10)


def test_an_engine_found_to_keep_prompts_in_slots_gets_such_a_cache() -> None:
    a = engine()
    index = index_of(a)
    ran(index, a, request(1, text(640, "x")), Usage())
    a.facts = facts(2, residency=Residency.SLOTS)
    index.fit(a)
    assert index.size("a") == (0, HOST_COPY_TOKENS * 4 // 256)
    ran(index, a, request(2, text(640, "x")), usage(640))
    index.fit(a)
    assert index.size("a")[0] == 10
    a.facts = facts(2)
    index.fit(a)
    assert index.size("a")[0] == 0


def test_slots_that_disappear_take_their_prompts_along() -> None:
    a = engine()
    a.facts = facts(2, residency=Residency.SLOTS)
    index = index_of(a)
    for key, name in enumerate("xy"):
        ran(index, a, request(key, text(640, name)), Usage())
    a.facts = facts(1, residency=Residency.SLOTS)
    index.fit(a)
    assert tokens(index, a, request(8, text(640, "x")), "m")[1] == 0
    assert tokens(index, a, request(9, text(640, "y")), "m")[1] == 639


def test_tokens_that_no_other_slot_holds_are_in_the_models_own_tokens() -> None:
    a = engine()
    a.facts = facts(2, residency=Residency.SLOTS)
    index = index_of(a)
    one, two = request(1, text(640, "s") + text(640, "x")), request(2, text(640, "s") + text(320, "y"))
    index.begin("a", one, "m", 0.0)
    ran(index, a, two, usage(960))
    assert index.unshared_tokens("a", one, "m") == 640
    assert index.unshared_tokens("a", two, "m") == 320
    ran(index, a, two, usage(1920))
    ratio = index.bytes_per_token(one, "m")
    assert ratio < 4.0
    assert index.unshared_tokens("a", two, "m") == int(320 * 4 / ratio)


def test_a_pool_of_blocks_has_no_slot_to_lose() -> None:
    a = engine()
    index = index_of(a)
    ran(index, a, request(1, text(640, "x")), Usage())
    assert index.unshared_tokens("a", request(1, text(640, "x")), "m") == 0


def test_a_host_copy_that_did_not_come_halves_the_assumed_host_memory() -> None:
    a = engine()
    a.facts = facts(1, residency=Residency.SLOTS)
    index = index_of(a)
    ran(index, a, request(1, text(640, "x")), usage(640))
    ran(index, a, request(2, text(640, "y")), usage(640))
    ran(index, a, request(3, text(640, "x")), usage(640, 0), predicted=639)
    assert index.size("a") == (10, HOST_COPY_TOKENS * 4 // 256 // 2)


def test_what_an_engine_with_large_blocks_cannot_tell_is_not_lost() -> None:
    a = engine()
    a.facts = facts(2, kv_tokens=64_000, block_tokens=128)
    index = index_of(a)
    for key, other in enumerate(("old", "older"), 10):
        ran(index, a, request(key, text(1000, other)), usage(1000, 0))
    prompt = text(700, "x")
    ran(index, a, request(1, prompt), usage(700, 0))
    ran(index, a, request(2, prompt + text(90, "y")), usage(790, 512))
    assert index.match(a, index.prompt(request(3, text(1000, "older")), "m")).resident_tokens == 896


def test_a_loss_is_seen_while_what_is_known_of_lengths_ages() -> None:
    a = engine()
    a.facts = facts(2, kv_tokens=64_000)
    index = index_of(a)
    index._lengths = Lengths(256, max_marks=2)
    older, prompt = text(1000, "older"), text(1000, "x")
    ran(index, a, request(1, older), usage(1000, 0))
    ran(index, a, request(2, prompt), usage(1000, 0))
    assert tokens(index, a, request(3, older), "m")[1] > 0
    ran(index, a, request(4, prompt + text(1000, "y")), usage(2000, 0))
    assert tokens(index, a, request(5, older), "m") == (1000, 0, 0)


def test_a_prompt_with_longer_tokens_than_most_is_not_lost() -> None:
    a = engine()
    a.facts = facts(2, kv_tokens=64_000)
    index = index_of(a)
    ran(index, a, request(1, text(1000, "older")), usage(1000, 0))
    prompt = text(2000, "x")
    ran(index, a, request(2, prompt), usage(1500, 0))
    ran(index, a, request(3, prompt + text(60, "y")), usage(1545, 1485))
    assert index.match(a, index.prompt(request(4, text(1000, "older")), "m")).resident_tokens > 0


PROSE, CODE = text(2000, "p"), text(2000, "c")


def after_prose_and_code(cached: int) -> tuple[Index, Engine]:
    """An older conversation, one of 1,000 tokens of prose, and that again with 4,000 of code, of which the
    engine had `cached`."""
    a = engine()
    a.facts = facts(2, kv_tokens=64_000)
    index = index_of(a)
    ran(index, a, request(1, text(1000, "older")), usage(1000, 0))
    ran(index, a, request(2, PROSE), usage(1000, 0))
    ran(index, a, request(3, PROSE + CODE), usage(5000, cached))
    return index, a


def test_a_conversation_whose_parts_differ_in_bytes_per_token_is_neither_lost_nor_misjudged() -> None:
    index, a = after_prose_and_code(cached=992)
    assert tokens(index, a, request(4, text(1000, "older")), "m")[1] > 0
    prompt, resident, _ = tokens(index, a, request(5, PROSE + CODE + text(64, "q")), "m")
    assert (prompt, resident) == (5073, 4960)
    # Of a prompt that shares the prose only, so much is known, too.
    assert tokens(index, a, request(6, PROSE + text(64, "r")), "m")[1] == pytest.approx(1000, abs=40)


def test_a_conversation_that_is_gone_is_seen_to_be_gone() -> None:
    index, a = after_prose_and_code(cached=400)
    assert tokens(index, a, request(4, text(1000, "older")), "m")[1] == 0


def test_another_engine_of_the_same_name_has_versions_of_its_own():
    first, second = engine("a"), engine("a")
    index = Index({"a": first})
    seen = {index.version("a")}
    index.fit(first)
    seen.add(index.version("a"))
    index.remove("a")
    index.fit(second)
    seen.add(index.version("a"))
    assert len(seen) == 3
