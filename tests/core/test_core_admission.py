from core_values import request

from gateway.core.admission import PROMOTE_AFTER_S, Queue
from gateway.core.request import HIGH, LOW, NORMAL


def order(queue: Queue) -> list[int]:
    return [waiting.request.key for waiting in queue]


def test_a_queue_counts_requests_and_bytes() -> None:
    queue = Queue(2, 1000)
    queue.add(request(1, body_bytes=300), 0.0)
    queue.add(request(2, body_bytes=500), 0.0)
    assert (len(queue), queue.bytes) == (2, 800)
    assert 1 in queue
    assert queue.remove(1, 0.0) is not None
    assert (len(queue), queue.bytes) == (1, 500)
    assert 1 not in queue


def test_removing_what_does_not_wait_changes_nothing() -> None:
    queue = Queue(2, 1000)
    assert queue.remove(7, 0.0) is None
    assert queue.bytes == 0


def test_a_request_fits_up_to_both_bounds() -> None:
    queue = Queue(2, 1000)
    assert queue.fits(1000)
    assert not queue.fits(1001)
    queue.add(request(1, body_bytes=400), 0.0)
    assert queue.fits(600)
    assert not queue.fits(601)
    queue.add(request(2, body_bytes=0), 0.0)
    assert not queue.fits(0)


def test_priority_comes_before_arrival_and_resumed_requests_before_all() -> None:
    queue = Queue(9, 1000)
    queue.add(request(1, priority=LOW), 0.0)
    queue.add(request(2, priority=NORMAL), 0.1)
    queue.add(request(3, priority=NORMAL), 0.2)
    queue.add(request(4, priority=HIGH), 0.3)
    queue.add(request(5, priority=LOW), 0.4, resumed=True)
    assert order(queue) == [5, 4, 2, 3, 1]


def test_the_first_of_each_lane_for_some_models() -> None:
    queue = Queue(9, 1000)
    assert queue.firsts({"m", "n"}) == []
    queue.add(request(1, model="o"), 0.0)
    queue.add(request(2), 0.0)
    queue.add(request(3, model="n"), 0.0)
    queue.add(request(4, model="n", priority=HIGH), 0.0)
    queue.add(request(5, priority=LOW), 0.0, resumed=True)
    assert [it.request.key for it in queue.firsts({"m", "n"})] == [5, 4, 2]
    assert [it.request.key for it in queue.firsts({"n"})] == [4, 3]


def test_long_waiting_moves_a_request_up_one_lane_at_a_time() -> None:
    queue = Queue(9, 1000)
    queue.add(request(1, priority=LOW), 0.0)
    queue.add(request(2, priority=NORMAL), 1.0)
    queue.promote(PROMOTE_AFTER_S - 0.1)
    queue.add(request(3, priority=HIGH), 29.95)
    assert order(queue) == [3, 2, 1]
    queue.promote(PROMOTE_AFTER_S)
    queue.add(request(4, priority=NORMAL), 30.5)
    assert order(queue) == [3, 2, 1, 4]
    queue.promote(PROMOTE_AFTER_S + 1.0)
    assert order(queue) == [3, 2, 1, 4]
    queue.add(request(5, priority=HIGH), 31.5)
    assert order(queue) == [3, 2, 5, 1, 4]
    queue.promote(2 * PROMOTE_AFTER_S)
    assert order(queue) == [3, 2, 5, 1, 4]
    queue.add(request(6, priority=HIGH), 60.5)
    assert order(queue) == [3, 2, 5, 1, 6, 4]


def test_a_promoted_request_is_removed_from_its_new_lane() -> None:
    queue = Queue(9, 1000)
    queue.add(request(1, priority=LOW), 0.0)
    queue.promote(PROMOTE_AFTER_S)
    assert queue.remove(1, 0.0) is not None
    assert order(queue) == []


def test_requests_expire_at_their_own_deadlines() -> None:
    queue = Queue(9, 1000)
    queue.add(request(1, max_wait_s=5.0), 0.0)
    queue.add(request(2, max_wait_s=1.0), 2.0)
    queue.add(request(3, max_wait_s=9.0), 0.0)
    assert queue.next_deadline() == 3.0
    assert queue.expired(2.9) == []
    assert [waiting.request.key for waiting in queue.expired(5.0)] == [2, 1]
    assert order(queue) == [3]
    assert queue.next_deadline() == 9.0


def test_time_that_a_request_has_waited_before_counts() -> None:
    queue = Queue(9, 1000)
    waiting = queue.add(request(1, max_wait_s=5.0), 100.0, waited_s=3.0, resumed=True)
    assert (waiting.since, waiting.deadline) == (97.0, 102.0)


def test_a_request_that_comes_back_keeps_only_its_new_deadline() -> None:
    queue = Queue(9, 1000)
    queue.add(request(1, max_wait_s=5.0), 0.0)
    queue.remove(1, 0.0)
    queue.add(request(1, max_wait_s=5.0), 4.0, waited_s=1.0)
    assert queue.expired(5.0) == []
    assert [waiting.request.key for waiting in queue.expired(8.0)] == [1]


def test_deadlines_of_those_who_left_are_passed_over() -> None:
    queue = Queue(9, 1000)
    queue.add(request(1, max_wait_s=1.0), 0.0)
    queue.add(request(2, max_wait_s=5.0), 0.0)
    queue.remove(1, 0.0)
    assert queue.next_deadline() == 5.0
    queue.remove(2, 0.0)
    assert queue.next_deadline() is None


def test_deadlines_of_those_who_left_do_not_pile_up() -> None:
    queue = Queue(9, 1000)
    queue.add(request(1, max_wait_s=900.0), 0.0)
    for key in range(2, 2000):
        queue.add(request(key, max_wait_s=1000.0), float(key))
        queue.remove(key, 0.0)
    assert len(queue.deadlines) < 200
    assert [waiting.request.key for waiting in queue.expired(900.0)] == [1]


def test_the_first_for_some_models_are_found_behind_others() -> None:
    queue = Queue(99, 10_000)
    for key in range(50):
        queue.add(request(key, model="busy"), 0.0)
    for key in range(50, 55):
        queue.add(request(key, model="idle"), 0.0)
    assert [waiting.request.key for waiting in queue.first({"idle"}, 3, 3)] == [50, 51, 52]
    assert [waiting.request.key for waiting in queue.first({"none"}, 3, 3)] == []


def test_of_those_who_are_kept_out_only_some_are_among_the_first() -> None:
    queue = Queue(99, 10_000)
    for key in range(4):
        queue.add(request(key), 0.0).is_kept_out = True
    queue.add(request(9), 0.0)
    assert [waiting.request.key for waiting in queue.first({"m"}, 5, 2)] == [0, 1, 9]
