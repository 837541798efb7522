import pytest
from core_values import text
from hypothesis import given
from hypothesis import strategies as st

from gateway.core.blocks import BLOCK_BYTES, chain
from gateway.core.pools import Affinity
from gateway.core.request import Member, Request

SYSTEM = text(512, "system")
"""Eight blocks that every conversation here begins with."""


def ask(prompt: bytes = b"", *, session: int = 0, pool: tuple[str, ...] = ("m", "n")) -> Request:
    members = tuple(Member(model, chain(prompt, model)) for model in pool)
    return Request(
        key=1,
        id="r",
        api="chat",
        model=pool[0],
        blocks=members[0].blocks,
        prompt_bytes=len(prompt),
        session=session,
        pool=members if len(pool) > 1 else (),
    )


def turns(of: str, count: int) -> bytes:
    """The prompt of a conversation's turn number `count`, which is two blocks longer than the one before."""
    return SYSTEM + text(128 * count, of)


# Sessions that are named


def test_a_named_session_stays_on_its_model_whatever_its_prompt() -> None:
    affinity = Affinity()
    assert affinity.model_of(ask(turns("x", 1), session=7)) is None
    affinity.placed(ask(turns("x", 1), session=7), "n")
    assert affinity.model_of(ask(turns("y", 1), session=7)) == "n"
    assert affinity.model_of(ask(session=7)) == "n"
    assert affinity.model_of(ask(turns("x", 2), session=8)) is None
    assert affinity.model_of(ask(turns("x", 2))) is None


def test_it_is_on_the_model_that_it_was_placed_on_last() -> None:
    affinity = Affinity()
    affinity.placed(ask(session=7), "n")
    affinity.placed(ask(session=7), "m")
    assert affinity.model_of(ask(session=7)) == "m"


def test_a_session_of_several_pools_has_a_model_in_each() -> None:
    affinity = Affinity()
    big, small, mixed = ("m", "n"), ("k", "l"), ("k", "m")
    affinity.placed(ask(session=7, pool=big), "n")
    affinity.placed(ask(session=7, pool=small), "l")
    assert affinity.model_of(ask(session=7, pool=mixed)) is None
    affinity.placed(ask(session=7, pool=mixed), "m")
    assert [affinity.model_of(ask(session=7, pool=pool)) for pool in (big, small, mixed)] == ["m", "l", "m"]


# Conversations


def test_a_conversation_is_recognised_by_the_prompt_that_it_goes_on_from() -> None:
    affinity = Affinity()
    affinity.placed(ask(turns("x", 1)), "m")
    affinity.placed(ask(turns("y", 1)), "n")
    assert affinity.model_of(ask(turns("x", 2))) == "m"
    assert affinity.model_of(ask(turns("y", 5))) == "n"
    assert affinity.model_of(ask(turns("z", 2))) is None


def test_it_is_recognised_turn_after_turn_and_so_is_a_turn_asked_for_again() -> None:
    affinity = Affinity()
    affinity.placed(ask(turns("x", 1)), "n")
    for turn in range(2, 30):
        for _ in range(2):
            assert affinity.model_of(ask(turns("x", turn))) == "n"
            affinity.placed(ask(turns("x", turn)), "n")


def test_one_whose_last_model_is_not_in_the_pool_is_on_none() -> None:
    affinity = Affinity()
    affinity.placed(ask(turns("x", 1)), "n")
    assert affinity.model_of(ask(turns("x", 2), pool=("m", "k"))) is None


def test_the_same_prompt_again_is_no_continuation() -> None:
    """Many short requests with one system prompt must not end up on one model."""
    affinity = Affinity()
    affinity.placed(ask(SYSTEM + b"what is a dog?"), "m")
    assert affinity.model_of(ask(SYSTEM + b"what is a cat?")) is None


def test_what_several_conversations_go_on_from_binds_none_of_those_to_come() -> None:
    affinity = Affinity()
    affinity.placed(ask(SYSTEM), "m")
    affinity.placed(ask(turns("x", 1)), "m")
    assert affinity.model_of(ask(turns("y", 1))) is None
    affinity.placed(ask(turns("y", 1)), "n")
    affinity.placed(ask(SYSTEM), "m")
    assert affinity.model_of(ask(turns("x", 1))) is None
    assert (affinity.model_of(ask(turns("x", 2))), affinity.model_of(ask(turns("y", 2)))) == ("m", "n")


def test_what_was_placed_on_two_models_binds_nobody() -> None:
    affinity = Affinity()
    affinity.placed(ask(SYSTEM), "m")
    affinity.placed(ask(SYSTEM), "n")
    assert affinity.model_of(ask(turns("x", 1))) is None


def test_what_is_known_to_be_shared_outlives_the_conversations_that_go_on_from_it() -> None:
    affinity = Affinity()
    affinity.placed(ask(SYSTEM), "m")
    for of in "xy":
        for turn in range(1, 5):
            affinity.placed(ask(turns(of, turn)), "m")
    assert affinity.model_of(ask(turns("z", 1))) is None


# Neither


@pytest.mark.parametrize("session", [0, 7])
def test_a_request_for_one_model_is_of_no_pool(session: int) -> None:
    affinity = Affinity()
    affinity.placed(ask(turns("x", 1), session=session, pool=("m",)), "m")
    assert affinity.model_of(ask(turns("x", 2), session=session, pool=("m",))) is None
    assert affinity.model_of(ask(turns("x", 2), session=session)) is None


def test_a_prompt_of_less_than_a_block_is_not_recognised() -> None:
    affinity = Affinity()
    affinity.placed(ask(b"x" * (BLOCK_BYTES - 1)), "n")
    assert affinity.model_of(ask(b"x" * (3 * BLOCK_BYTES))) is None


# Bounds


def test_the_session_heard_of_longest_ago_is_forgotten() -> None:
    affinity = Affinity(max_sessions=2)
    for session in (1, 2, 1, 3):
        affinity.placed(ask(session=session), "n")
    assert [affinity.model_of(ask(session=it)) for it in (1, 2, 3)] == ["n", None, "n"]


def test_the_conversation_heard_of_longest_ago_is_forgotten() -> None:
    affinity = Affinity(max_sessions=2)
    for turn in range(1, 9):
        for of in "xy":
            affinity.placed(ask(turns(of, turn)), "n")
    assert [affinity.model_of(ask(turns(of, 9))) for of in "xy"] == ["n", "n"]
    for of in "zw":
        for turn in (1, 2):
            affinity.placed(ask(turns(of, turn)), "n")
    assert [affinity.model_of(ask(turns(of, 9))) for of in "xyzw"] == [None, None, "n", "n"]


@given(
    st.lists(
        st.tuples(st.lists(st.integers(1, 3), max_size=6), st.integers(0, 6), st.sampled_from(["m", "n"]))
    )
)
def test_whatever_comes_it_stays_bounded_and_names_only_models_of_the_pool(
    calls: list[tuple[list[int], int, str]],
) -> None:
    """Few distinct blocks, so that prompts repeat, fork and go on from each other in every way."""
    affinity = Affinity(max_sessions=3)
    for key, (blocks, session, model) in enumerate(calls):
        path = tuple(sum(block * 4**at for at, block in enumerate(blocks[:end])) for end in range(1, 7))
        members = (Member("m", path[: len(blocks)]), Member("n"))
        it = Request(
            key=key, id="r", api="chat", model="m", blocks=members[0].blocks, session=session, pool=members
        )
        assert affinity.model_of(it) in (None, "m", "n")
        affinity.placed(it, model)
        if session:
            assert affinity.model_of(it) == model
        assert (len(affinity._named) <= 3, len(affinity._ends) <= 6) == (True, True)
