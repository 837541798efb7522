import asyncio

import pytest
from harness import until
from raw_engine import answers, raw_engine, seen, whole
from test_upstream import OK, Attempt, sent

from gateway.edge.pools import Pools
from gateway.edge.upstream import Pool


@pytest.fixture
async def engine():
    async with raw_engine(answers(whole(OK))) as engine:
        yield engine


def pool_of(engine):
    return Pool(engine.url, None, 5.0, asyncio.get_running_loop())


async def test_a_pool_that_was_put_away_closes_what_is_idle_and_finishes_what_runs(engine):
    pools = Pools()
    pools.put("a", pool_of(engine))
    pool = pools["a"]
    await sent(pool)
    idle = engine.calls[0]

    async def hold(call):
        await call.left.wait()

    engine.handler = hold
    running = Attempt()
    pool.connect(running)
    call = await seen(engine, 2)
    other = pool_of(engine)
    pools.put("a", other)
    await asyncio.wait_for(idle.left.wait(), 5)
    pools.trim()
    assert (pools["a"], pools._retired) == (other, [pool])
    call.write(whole(OK))
    assert (await running.end()).answer == OK

    async def closed():
        pools.trim()
        return pools._retired == []

    await until(closed)
    await asyncio.wait_for(call.left.wait(), 5)
    pools.put_away("nobody")
    pools.close()


async def test_closing_ends_what_was_put_away_too(engine):
    async def hold(call):
        await call.left.wait()

    engine.handler = hold
    pools = Pools()
    pools.put("a", pool_of(engine))
    pools["a"].connect(Attempt())
    call = await seen(engine)
    pools.put_away("a")
    assert not pools
    pools.close()
    await asyncio.wait_for(call.left.wait(), 5)
