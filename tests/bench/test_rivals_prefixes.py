import pytest
from rival_values import chain

from gateway.bench.engine import matched_blocks
from gateway.bench.rivals.prefixes import Index

ROOT = chain(1, 4)


@pytest.mark.parametrize("held", range(6))
def test_the_leading_blocks_are_found_by_bisection(held):
    assert matched_blocks(chain(1, 5), set(chain(1, 5)[:held])) == held


def test_no_blocks_lead_nowhere():
    assert matched_blocks((), {1}) == 0


def test_each_engine_matches_as_far_as_it_holds():
    index = Index([None, None, None, None])
    index.insert(0, ROOT, 1.0)
    index.insert(1, chain(1, 8), 1.0)
    index.insert(2, chain(2, 9, start=ROOT[:2]), 1.0)
    assert index.match(chain(1, 6)) == [4, 6, 2, 0]


def test_a_bound_takes_the_least_recently_used_leaf_first():
    index = Index([8])
    index.insert(0, chain(2, 6, start=ROOT), 1.0)
    index.insert(0, chain(3, 6, start=ROOT), 2.0)
    index.insert(0, chain(4, 5, start=ROOT), 3.0)
    assert index.match(chain(2, 6, start=ROOT)) == [5]
    assert index.match(chain(3, 6, start=ROOT)) == [6]
    assert index.match(chain(4, 5, start=ROOT)) == [5]


def test_using_a_chain_again_keeps_all_of_it():
    index = Index([6])
    index.insert(0, chain(1, 3), 1.0)
    index.insert(0, chain(2, 3), 2.0)
    index.insert(0, chain(1, 3), 3.0)
    index.insert(0, chain(3, 2), 4.0)
    assert [index.match(chain(name, 3)) for name in (1, 2)] == [[3], [1]]


def test_an_inner_block_is_as_recent_as_its_own_last_use():
    index = Index([5])
    index.insert(0, chain(1, 3), 1.0)
    index.insert(0, chain(2, 2), 2.0)
    index.insert(0, chain(1, 2), 3.0)
    index.insert(0, chain(3, 2), 4.0)
    assert [index.match(chain(name, 3)) for name in (1, 2)] == [[2], [1]]


def test_a_chain_that_was_continued_loses_its_new_end_first():
    index = Index([4])
    index.insert(0, chain(1, 2), 1.0)
    index.insert(0, chain(1, 4), 2.0)
    index.insert(0, chain(2, 1), 3.0)
    assert index.match(chain(1, 4)) == [3]


def test_a_prompt_longer_than_the_bound_keeps_its_head():
    index = Index([3])
    index.insert(0, chain(1, 5), 1.0)
    assert index.match(chain(1, 5)) == [3]


def test_what_is_too_old_is_forgotten_and_what_a_later_chain_uses_is_not():
    index = Index([None])
    index.insert(0, chain(1, 6), 1.0)
    index.insert(0, chain(2, 6, start=chain(1, 2)), 5.0)
    index.expire(5.0)
    assert index.match(chain(1, 6)) == [2]
    assert index.match(chain(2, 6, start=chain(1, 2))) == [6]


def test_clearing_one_engine_leaves_the_others():
    index = Index([None, None])
    index.insert(0, ROOT, 1.0)
    index.insert(1, ROOT, 1.0)
    index.clear(0)
    assert index.match(ROOT) == [0, 4]
    index.insert(0, ROOT[:1], 2.0)
    assert index.match(ROOT) == [1, 4]
