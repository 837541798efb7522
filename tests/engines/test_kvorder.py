from gateway.engines.kvorder import MAX_KEPT, Numbered, Order, Orders


def batch(number: int, sent_s: float | None = None) -> Numbered:
    return Numbered(number, float(number) if sent_s is None else sent_s, [])


def used(orders: Orders) -> list[int]:
    return [it.number for it in orders.use]


def following(*, can_ask: bool, until: int = 3) -> Order:
    """It has had all batches before `until`."""
    order = Order(can_ask=can_ask)
    order.answered()
    for number in range(until):
        assert used(order.came(batch(number))) == [number]
    return order


def test_whoever_comes_late_asks_for_all() -> None:
    order = Order(can_ask=True)

    assert order.begin() == Orders(forget=True, ask=True)
    assert order.came(batch(2)) == Orders()
    assert [used(order.replayed(batch(number))) for number in (0, 1, 2)] == [[0], [1], [2]]
    assert order.came(batch(3)) == Orders()
    assert order.answered() == Orders(use=[batch(3)])
    assert order.came(batch(4)) == Orders(use=[batch(4)])


def test_whoever_cannot_ask_begins_with_what_comes() -> None:
    order = Order(can_ask=False)

    assert order.begin() == Orders(forget=True)
    assert order.came(batch(7)) == Orders(use=[batch(7)])
    assert order.came(batch(8)) == Orders(use=[batch(8)])


def test_a_publisher_that_does_not_answer_is_not_asked_again() -> None:
    order = Order(can_ask=True)
    order.came(batch(7))

    assert order.answered(well=False) == Orders(use=[batch(7)])

    assert order.came(batch(9)) == Orders(forget=True, use=[batch(9)], lost=True)


def test_without_a_batch_meanwhile_it_begins_with_the_next_that_comes() -> None:
    order = Order(can_ask=True)
    order.answered(well=False)

    assert order.came(batch(7)) == Orders(use=[batch(7)])


def test_a_publisher_that_keeps_fewer_than_there_were_loses_nothing_that_was_known() -> None:
    order = Order(can_ask=True)

    assert order.replayed(batch(5)) == Orders(use=[batch(5)])
    assert order.replayed(batch(6)) == Orders(use=[batch(6)])
    assert order.answered() == Orders()


def test_what_is_missing_is_asked_for() -> None:
    order = following(can_ask=True)

    assert order.came(batch(5)) == Orders(ask=True)
    assert order.expected == 3
    assert order.came(batch(6)) == Orders()
    assert used(order.replayed(batch(3))) == [3]
    assert used(order.replayed(batch(4))) == [4]
    assert order.answered() == Orders(use=[batch(5), batch(6)])


def test_what_comes_twice_counts_once() -> None:
    order = following(can_ask=True)
    order.came(batch(4))
    order.replayed(batch(3))
    order.replayed(batch(4))
    order.came(batch(5))

    assert order.answered() == Orders(use=[batch(5)])
    assert order.came(batch(4)) == Orders()
    assert order.replayed(batch(6)) == Orders()


def test_what_cannot_be_had_any_more_is_lost() -> None:
    order = following(can_ask=True)
    order.came(batch(9))

    assert order.replayed(batch(8)) == Orders(forget=True, use=[batch(8)], lost=True)
    assert order.answered() == Orders(use=[batch(9)])


def test_what_an_answer_does_not_hold_is_lost() -> None:
    order = following(can_ask=True)
    order.came(batch(9))

    assert order.answered() == Orders(forget=True, use=[batch(9)], lost=True)
    assert not order.asks
    assert order.came(batch(10)) == Orders(use=[batch(10)])


def test_whoever_cannot_ask_loses_what_is_missing() -> None:
    order = following(can_ask=False)

    assert order.came(batch(5)) == Orders(forget=True, use=[batch(5)], lost=True)


def test_of_what_was_kept_the_rest_waits_if_more_is_missing() -> None:
    order = following(can_ask=True)
    for number in (4, 6, 7):
        order.came(batch(number))
    order.replayed(batch(3))

    assert order.answered() == Orders(use=[batch(4)], ask=True)
    order.replayed(batch(5))
    assert order.answered() == Orders(use=[batch(6), batch(7)])


def test_another_process_counts_from_0_again() -> None:
    order = following(can_ask=True)

    assert order.came(batch(0, sent_s=99.0)) == Orders(forget=True, use=[batch(0, sent_s=99.0)])
    assert order.expected == 1


def test_of_another_process_all_is_asked_for() -> None:
    order = following(can_ask=True, until=9)

    assert order.came(batch(2, sent_s=99.0)) == Orders(forget=True, ask=True)
    assert order.expected == 0
    assert used(order.replayed(batch(0, sent_s=97.0))) == [0]


def test_of_another_process_that_cannot_be_asked_the_rest_counts() -> None:
    order = following(can_ask=False, until=9)
    late = batch(2, sent_s=99.0)

    assert order.came(late) == Orders(forget=True, use=[late])


def test_another_process_that_began_meanwhile_is_seen_in_what_was_kept() -> None:
    order = following(can_ask=True, until=9)
    order.came(batch(11))
    order.came(batch(0, sent_s=99.0))
    order.replayed(batch(9))
    order.replayed(batch(10))

    orders = order.answered()

    assert (orders.forget, orders.lost, used(orders)) == (True, False, [0])


def test_an_answer_to_nothing_changes_nothing() -> None:
    order = following(can_ask=True)

    assert order.answered() == Orders()


def test_more_than_a_publisher_keeps_is_not_kept_either() -> None:
    order = Order(can_ask=True)
    for number in range(MAX_KEPT + 5):
        order.came(batch(number))

    assert used(order.answered())[:1] == [5]
