from hypothesis import given
from hypothesis import strategies as st

from gateway.core.blocks import BLOCK_BYTES, chain

prompts = st.binary(max_size=6 * BLOCK_BYTES)


def test_a_partial_block_has_no_hash() -> None:
    assert chain(b"x" * (BLOCK_BYTES - 1), "m") == ()
    assert len(chain(b"x" * BLOCK_BYTES, "m")) == 1
    assert len(chain(b"x" * (3 * BLOCK_BYTES - 1), "m")) == 2


@given(prompts, prompts)
def test_a_longer_prompt_keeps_the_chain_of_its_beginning(head: bytes, tail: bytes) -> None:
    whole, begun = chain(head + tail, "m"), chain(head, "m")
    assert whole[: len(begun)] == begun


def test_a_difference_changes_every_hash_from_its_block_on() -> None:
    same = b"s" * BLOCK_BYTES
    one = chain(same + b"a" * BLOCK_BYTES + same, "m")
    other = chain(same + b"b" * BLOCK_BYTES + same, "m")
    assert one[0] == other[0]
    assert one[1] != other[1]
    assert one[2] != other[2]


def test_equal_blocks_at_different_depths_have_different_hashes() -> None:
    assert len(set(chain(b"x" * (8 * BLOCK_BYTES), "m"))) == 8


def test_models_and_salts_share_nothing() -> None:
    prompt = b"x" * BLOCK_BYTES
    chains = {chain(prompt, *it) for it in (("m", ""), ("n", ""), ("m", "s"), ("m", "t"), ("ms", ""))}
    assert len(chains) == 5


def test_a_salt_cannot_imitate_another_models_name() -> None:
    prompt = b"x" * BLOCK_BYTES
    assert chain(prompt, "ab", "c") != chain(prompt, "a", "bc")


def test_a_lone_surrogate_in_a_salt_is_hashed() -> None:
    prompt = b"x" * BLOCK_BYTES
    assert chain(prompt, "m", "\ud800") != chain(prompt, "m", "\ud801")
