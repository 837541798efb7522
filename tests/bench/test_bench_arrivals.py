"""Who sends which turn when, in each way of playing a workload."""

from itertools import pairwise
from random import Random

import pytest
from bench_values import BLOCK_TOKENS, ids, session, turn, workload

from gateway.bench.arrivals import (
    Arrival,
    Arrivals,
    Bursts,
    ClosedLoop,
    OpenLoop,
    OpenSessions,
    Player,
    Source,
)
from gateway.bench.workload import Workload

FIRST, SECOND = 1 << 32, 2 << 32
TWO_TURNS = session(turn(3, think=7.0), turn(5, think=40.0), shared=2)


def source(plan: Arrivals, what: Workload, *, warm: float = 100.0, until: float = 1000.0) -> Source:
    return plan.source(what, Random(1), warm, until)


def blocks(player: Player) -> tuple[int, ...]:
    return player.ask(0, 0.0).blocks


def test_a_fresh_play_has_ids_of_its_own_after_the_shared_ones() -> None:
    one, two = Player(TWO_TURNS, 1), Player(TWO_TURNS, 2)

    assert blocks(one) == (1, 2, FIRST + 3)
    assert blocks(two) == (1, 2, SECOND + 3)
    one.step()
    assert blocks(one) == (1, 2, FIRST + 3, FIRST + 4, FIRST + 5)


@pytest.mark.parametrize("shared", [0, 1, 2, 3, 9])
def test_ids_are_the_same_whatever_was_asked_before(shared: int) -> None:
    turns = (turn(2), turn(6), turn(4, first=1), turn(3, first=50), turn(6))
    player = Player(session(*turns, shared=shared), 1)

    for it in turns:
        expected = (*it.blocks[:shared], *(FIRST + block for block in it.blocks[shared:]))
        assert blocks(player) == expected
        player.step()


def test_an_ask_carries_the_turn_it_is_at() -> None:
    player = Player(TWO_TURNS, 4)
    player.step()
    made = player.ask(17, 2.5)

    assert (made.key, made.session, made.arrived_s) == (17, 4, 2.5)
    assert (made.prompt_tokens, made.output_tokens) == (500, 1)


def test_agents_start_anywhere_in_the_first_half_of_the_warm_up() -> None:
    long = session(*(turn(3) for _ in range(50)))
    starts = source(ClosedLoop(agents=40), workload(long)).start()

    assert len({it.player.number for it in starts}) == 40
    assert all(0 <= it.at_s < 50 for it in starts)
    assert max(it.at_s for it in starts) > 40
    assert len({it.player.turn for it in starts}) > 20


def test_an_agent_thinks_and_goes_on_with_the_next_session() -> None:
    agents = source(ClosedLoop(agents=1, think_cap_s=30.0), workload(TWO_TURNS))
    (start,) = agents.start()
    start.player.turn = 0

    second = agents.answered(start.player, 10.0)
    assert second == Arrival(40.0, start.player)
    assert second.player.turn == 1

    new = agents.answered(start.player, 50.0)
    assert new is not None
    assert (new.at_s, new.player.number, new.player.turn) == (57.0, 2, 0)


def test_a_refused_agent_sends_the_same_turn_again() -> None:
    agents = source(ClosedLoop(agents=1), workload(TWO_TURNS))
    (start,) = agents.start()
    turn = start.player.turn

    assert agents.refused(start.player, 10.0) == Arrival(15.0, start.player)
    assert start.player.turn == turn


def test_sessions_are_played_in_a_random_order_before_any_comes_again() -> None:
    sessions = [session(turn(blocks)) for blocks in range(1, 9)]
    starts = source(ClosedLoop(agents=16), workload(*sessions)).start()
    played = [len(it.player.session.turns[0].blocks) for it in starts]

    assert sorted(played[:8]) == [1, 2, 3, 4, 5, 6, 7, 8]
    assert played[:8] == played[8:]
    assert played[:8] != [1, 2, 3, 4, 5, 6, 7, 8]


def test_open_sessions_start_at_their_rate_and_wait_inside() -> None:
    sessions = source(OpenSessions(per_s=0.5), workload(TWO_TURNS), until=2000.0)
    starts = sessions.start()
    gaps = [b.at_s - a.at_s for a, b in pairwise(starts)]

    assert 900 < len(starts) < 1100
    # Exponential gaps: as many below the mean of 2 s as 1 - 1/e says.
    assert 0.6 < sum(gap < 2.0 for gap in gaps) / len(gaps) < 0.66
    player = starts[0].player
    assert player.turn == 0
    assert sessions.answered(player, 10.0) == Arrival(40.0, player)
    assert sessions.answered(player, 50.0) is None
    assert sessions.refused(starts[1].player, 50.0) is None


def test_recorded_gaps_are_stretched_to_the_rate_and_go_round() -> None:
    plan = OpenSessions(per_s=0.1, gaps_s=(1.0, 2.0, 3.0))
    starts = source(plan, workload(TWO_TURNS), until=100.0).start()
    gaps = [round(b.at_s - a.at_s, 6) for a, b in pairwise(starts)]

    # A mean of 2 s becomes one of 10 s.
    assert gaps[:3] in ([5.0, 10.0, 15.0], [10.0, 15.0, 5.0], [15.0, 5.0, 10.0])
    assert gaps[3:6] == gaps[:3]


def test_an_open_loop_plays_the_record_as_it_is() -> None:
    recorded = session(turn(3, at=10.0), turn(5, at=11.0), turn(6, at=5000.0))
    loop = source(OpenLoop(speed=2.0), workload(recorded, session(turn(2, at=4.0))))
    starts = loop.start()

    asks = [(it.at_s, it.player.number, it.player.ask(0, it.at_s).blocks) for it in starts]
    assert asks == [(5.0, 0, ids((1, 3))), (5.5, 0, ids((1, 5))), (2.0, 1, ids((1, 2)))]
    assert loop.answered(starts[0].player, 6.0) is None
    assert loop.refused(starts[0].player, 6.0) is None


def test_a_burst_shares_the_head_and_one_new_prefix() -> None:
    plan = Bursts(base=OpenLoop(), every_s=50.0, width=3, prefix_tokens=250, own_tokens=150, output_tokens=9)
    bursts = source(plan, workload(TWO_TURNS), until=1000.0)
    starts = [it for it in bursts.start() if it.player.session is not TWO_TURNS]
    asks = [it.player.ask(0, it.at_s) for it in starts]

    assert len(starts) % 3 == 0
    assert 10 < len(starts) / 3 < 30
    first, second = asks[:3], asks[3:6]
    assert max(it.arrived_s for it in first) - min(it.arrived_s for it in first) <= 0.05
    for it in first:
        # 2 shared blocks, 250 and 150 tokens: 6 whole blocks, of which 4 lie before what is its own.
        assert (it.prompt_tokens, it.output_tokens, len(it.blocks)) == (600, 9, 6)
        assert it.blocks[:2] == (1, 2)
    assert len({it.blocks[:4] for it in first}) == 1
    assert len({it.blocks[4:] for it in first}) == 3
    assert not {block for it in first for block in it.blocks[2:]} & {
        block for it in second for block in it.blocks[2:]
    }
    assert len({it.session for it in asks}) == len(asks)


def test_bursts_are_one_request_each_and_leave_the_others_to_their_loop() -> None:
    plan = Bursts(base=ClosedLoop(agents=2), every_s=100.0)
    bursts = source(plan, workload(TWO_TURNS))
    agent, *_, sub_agent = (it.player for it in bursts.start())

    assert bursts.answered(sub_agent, 5.0) is None
    assert bursts.refused(sub_agent, 5.0) is None
    assert bursts.refused(agent, 5.0) == Arrival(10.0, agent)
    assert bursts.answered(agent, 5.0) is not None


def test_a_burst_is_as_large_as_asked_for_by_default() -> None:
    bursts = source(Bursts(base=OpenLoop(), every_s=100.0), workload(TWO_TURNS))
    starts = [it for it in bursts.start() if it.player.session is not TWO_TURNS]

    assert len(starts) % 8 == 0
    assert starts[0].player.session.turns[0].prompt_tokens == 2 * BLOCK_TOKENS + 4096 + 1024
