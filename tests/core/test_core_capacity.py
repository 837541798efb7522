"""How many blocks an engine is believed to hold."""

from gateway.core.capacity import RISE, Capacity


def test_an_engine_is_believed_until_it_shows_otherwise() -> None:
    assert Capacity(1000).believed == 1000


def test_each_further_miss_takes_it_further_below_what_that_shows() -> None:
    capacity = Capacity(4000)
    believed = []
    for shown in (3200, 1600, 1280, 960, 800):
        capacity.is_below(shown)
        believed.append(capacity.believed)
    assert believed == [3200, 1550, 1200, 840, 700]


def test_what_is_believed_already_is_no_news() -> None:
    capacity = Capacity(1000)
    capacity.is_below(1000)
    assert (capacity.believed, capacity.overshoot) == (1000, 0.0)


def test_a_hit_on_what_was_believed_gone_brings_it_back_and_ends_the_search() -> None:
    capacity = Capacity(4000)
    capacity.is_below(3200)
    capacity.is_below(1600)
    capacity.is_at_least(1580)
    assert (capacity.believed, capacity.overshoot) == (1580, 0.0)
    capacity.is_below(1280)
    capacity.is_at_least(1270)
    assert (capacity.believed, capacity.overshoot) == (1280, 0.0)


def test_a_hit_near_the_edge_ends_the_search() -> None:
    capacity = Capacity(4000)
    capacity.is_below(3200)
    capacity.is_about_right()
    capacity.is_below(1600)
    assert capacity.believed == 1600


def test_it_grows_slowly_while_others_have_to_go_for_what_comes() -> None:
    capacity = Capacity(4000)
    capacity.is_below(3200)
    capacity.overflows(RISE - 1)
    assert capacity.believed == 3200
    capacity.overflows(1)
    assert capacity.believed == 3201
    capacity.overflows(10 * RISE + 5)
    assert capacity.believed == 3211


def test_it_is_never_more_than_the_engine_says_nor_nothing() -> None:
    capacity = Capacity(10)
    capacity.overflows(5 * RISE)
    capacity.is_at_least(50)
    assert capacity.believed == 10
    capacity.is_below(0)
    assert capacity.believed == 1


def test_what_was_learned_keeps_its_share_of_the_bound() -> None:
    capacity = Capacity(0)
    capacity.rebound(90)
    assert capacity.believed == 90
    capacity.is_below(31)
    capacity.rebound(180)
    assert (capacity.believed, capacity.bound) == (62, 180)


def test_another_engine_is_believed_again() -> None:
    capacity = Capacity(4000)
    capacity.is_below(3200)
    capacity.forget()
    assert (capacity.believed, capacity.overshoot) == (4000, 0.0)
