"""KV events as recorded from vLLM 0.32.0, and in every form that engines have sent."""

import base64
import json
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.core.events import BlockEvent, Cleared, Removed, Stored
from gateway.engines.kvevents import KvDecoder

RECORDED = Path(__file__).parent / "recorded" / "vllm-0.32.0"
BLOCK = 4
FULL = {"group_idx": 0, "kv_cache_spec_kind": "full_attention"}


def payload(*events: Any, rank: tuple[int | None, ...] = (0,)) -> bytes:
    return msgspec.msgpack.encode([12.5, list(events), *rank])


def read(*events: Any, block_tokens: int = BLOCK) -> list[BlockEvent]:
    batch = KvDecoder(block_tokens).decode(payload(*events))
    assert batch is not None
    return batch.events


def stored(hashes: list[Any], parent: Any = None, **more: Any) -> dict[str, Any]:
    """As vLLM has sent it since June 2026."""
    return {
        "type": "BlockStored",
        "block_hashes": hashes,
        "parent_block_hash": parent,
        "token_ids": list(range(len(hashes) * BLOCK)),
        "block_size": BLOCK,
        "lora_id": None,
        "medium": "GPU",
        "lora_name": None,
        **more,
    }


def old(hashes: list[Any], parent: Any = None, *more: Any, tokens: list[Any] | None = None) -> list[Any]:
    """As vLLM sent it before, and SGLang does."""
    ids = list(range(len(hashes) * BLOCK)) if tokens is None else tokens
    return ["BlockStored", hashes, parent, ids, BLOCK, None, *more]


@pytest.mark.parametrize("name", ["kv-events.jsonl", "kv-events-replay.jsonl"])
def test_what_a_real_vllm_published(name: str) -> None:
    decoder = KvDecoder(128)
    lines = (RECORDED / name).read_text().splitlines()
    frames = [json.loads(line)["frames_b64"] for line in lines]

    batches = [decoder.decode(base64.b64decode(it[-1])) for it in frames if it[-1]]

    events = [event for batch in batches if batch for event in batch.events]
    assert [len(it.hashes) for it in events if isinstance(it, Stored)] == [6, 2, 2, 2]
    assert [it.parent for it in events if isinstance(it, Stored)] == [
        None, 7224231742422787406, 7224231742422787406, None,
    ]  # fmt: skip
    assert (decoder.events, decoder.errors, decoder.skipped, decoder.unknown) == (4, 0, 0, 0)
    assert batches[0] is not None
    assert batches[0].sent_s == pytest.approx(1796032606.765846)


@pytest.mark.parametrize("rank", [(), (None,), (3,), (0, "more")])
def test_a_batch_has_two_parts_or_more(rank: tuple[Any, ...]) -> None:
    batch = KvDecoder(BLOCK).decode(payload(stored([1]), rank=rank))

    assert batch is not None
    assert (batch.sent_s, batch.events) == (12.5, [Stored([1])])


def test_events_come_in_their_order() -> None:
    removed = {"type": "BlockRemoved", "block_hashes": [1], "medium": "GPU", "group_idx": 0}

    got = read(stored([1, 2]), stored([3], 2), removed, {"type": "AllBlocksCleared"})

    assert got == [Stored([1, 2]), Stored([3], 2), Removed([1]), Cleared()]


@pytest.mark.parametrize(
    "more",
    [
        (),
        ("GPU",),
        (None,),
        ("GPU", None),
        ("GPU", "an-adapter"),
        ("GPU", "an-adapter", [["salt"]]),
        ("GPU", None, [None], 0),
        ("GPU", None, [None], 0, "full_attention", None),
        ("GPU", {"cache_salt": "s"}),
    ],
)
def test_every_array_that_vllm_and_sglang_have_sent(more: tuple[Any, ...]) -> None:
    assert read(old([1], 7, *more)) == [Stored([1], 7)]


@pytest.mark.parametrize("more", [(), ("GPU",), (None,), ("GPU", 0)])
def test_removals_as_arrays(more: tuple[Any, ...]) -> None:
    assert read(["BlockRemoved", [1, 2], *more]) == [Removed([1, 2])]


def test_a_cleared_cache_as_an_array() -> None:
    assert read(["AllBlocksCleared"]) == [Cleared()]


def test_optional_keys_may_be_missing() -> None:
    event = stored([1])
    for name in ("lora_id", "medium", "lora_name"):
        del event[name]

    assert read(event, {"type": "BlockRemoved", "block_hashes": [1]}) == [Stored([1]), Removed([1])]


def test_hashes_are_unsigned_64_bits_whatever_they_were() -> None:
    digest = bytes(range(32))
    number = int.from_bytes(digest[-8:], "big")

    assert read(stored([digest], digest)) == [Stored([number], number)]
    assert read(old([-1], -7118092818384951138)) == [Stored([(1 << 64) - 1], 11328651255324600478)]
    assert read(stored([(1 << 64) - 1])) == [Stored([(1 << 64) - 1])]


def test_pages_of_token_pairs_count_as_pages() -> None:
    pairs = [[1, 2], [2, 3], [3, 4], [4, 5]]

    assert read(old([1], None, "GPU", tokens=pairs)) == [Stored([1])]


def test_long_pages_are_counted_too() -> None:
    assert len(read(stored([*range(4000)]))) == 1
    many = stored([*range(20_000)])

    assert len(read(many)) == 1


@pytest.mark.parametrize(
    "event",
    [
        stored([1], medium="CPU"),
        stored([1], medium="STORAGE"),
        old([1], None, "CPU_PINNED"),
        old([1], None, "DISK"),
        {"type": "BlockRemoved", "block_hashes": [1], "medium": "CPU"},
        stored([1], locality="REMOTE"),
        stored([1], group_idx=1, kv_cache_spec_kind="sliding_window"),
        stored([1], group_idx=1, kv_cache_spec_kind="mamba"),
        stored([1], group_idx=1),
        {"type": "BlockRemoved", "block_hashes": [1], "medium": "GPU", "group_idx": 1},
        stored([1], token_ids=[1, 2, 3]),
        stored([1], token_ids="none"),
        stored([1], block_size=2, token_ids=[1, 2]),
        stored([]),
    ],
)
def test_what_is_not_a_whole_block_in_gpu_memory_is_left_out(event: Any) -> None:
    decoder = KvDecoder(BLOCK)

    batch = decoder.decode(payload(event, stored([7])))

    assert batch is not None
    assert batch.events == [Stored([7])]
    assert (decoder.skipped, decoder.errors) == (1, 0)


@pytest.mark.parametrize("kind", ["full_attention", "mla_attention", "sink_full_attention"])
def test_of_a_hybrid_model_the_first_group_that_keeps_all_counts(kind: str) -> None:
    window = {"group_idx": 0, "kv_cache_spec_kind": "sliding_window"}

    got = read(
        stored([1], **window),
        stored([1], group_idx=1, kv_cache_spec_kind=kind),
        stored([1], group_idx=2, kv_cache_spec_kind=kind),
        {"type": "BlockRemoved", "block_hashes": [1], "medium": "GPU", "group_idx": 0},
        {"type": "BlockRemoved", "block_hashes": [1], "medium": "GPU", "group_idx": 1},
    )

    assert got == [Stored([1]), Removed([1])]


def test_keys_and_events_that_nothing_is_known_of_are_passed_over() -> None:
    decoder = KvDecoder(BLOCK)

    batch = decoder.decode(
        payload(
            stored([1], session_id="s", ownership="x", **FULL),
            {"type": "BlockInactive", "block_hashes": [1]},
            ["BlockMoved", [1], "GPU"],
        )
    )

    assert batch is not None
    assert batch.events == [Stored([1])]
    assert decoder.unknown == 2


@pytest.mark.parametrize(
    "event",
    [
        {"block_hashes": [1]},
        {"type": "BlockStored", "block_hashes": ["one"]},
        {"type": "BlockRemoved", "block_hashes": 1},
        ["BlockStored", [1]],
        ["BlockRemoved"],
        [],
        [7],
        7,
        None,
    ],
)
def test_beside_an_event_that_cannot_be_read_the_others_count(event: Any) -> None:
    decoder = KvDecoder(BLOCK)

    batch = decoder.decode(payload(event, stored([1])))

    assert batch is not None
    assert batch.events == [Stored([1])]
    assert decoder.errors == 1


@pytest.mark.parametrize("data", [b"", b"\x93", b"\xc1", b"null", payload()[:-1], b"\x92\xa1x\x90"])
def test_a_batch_that_cannot_be_read_is_an_error(data: bytes) -> None:
    decoder = KvDecoder(BLOCK)

    assert decoder.decode(data) is None
    assert decoder.errors == 1


@given(st.binary(max_size=200))
def test_no_bytes_make_it_fail(data: bytes) -> None:
    KvDecoder(BLOCK).decode(data)


@given(st.binary(max_size=60), st.integers(0, 120))
def test_nor_does_any_change_of_a_batch(change: bytes, at: int) -> None:
    whole = payload(stored([1, 2], 3, **FULL), old([5], 6, "GPU", None), ["BlockRemoved", [5], "GPU", 0])

    KvDecoder(BLOCK).decode(whole[:at] + change + whole[at + len(change) :])
