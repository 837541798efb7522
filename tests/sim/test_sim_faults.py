import math

import pytest

from gateway.sim.faults import Faults, parse_faults


def test_every_fault_is_read():
    names = ["refuse", "reset", "stall", "500", "slow-health:1.5", "truncate", "slow-cancel:2"]
    names += [
        "kill-on:a:b",
        "overload",
        "close-idle:0.5",
        "die-after-chunks:3",
        "buffer",
        "rate:2",
        "rate-delay:0.5",
    ]
    assert parse_faults(names) == Faults(
        refuse_s=math.inf,
        reset=True,
        stall_s=math.inf,
        error_500=True,
        slow_health_s=1.5,
        truncate=True,
        slow_cancel_s=2.0,
        kill_on="a:b",
        overload=True,
        close_idle_s=0.5,
        die_after_chunks=3,
        buffer=True,
        rate_per_s=2.0,
        rate_delay_per_s=0.5,
    )


def test_both_spellings_of_dying_are_one():
    assert parse_faults(["die-after-3-chunks"]) == parse_faults(["die-after-chunks:3"])


@pytest.mark.parametrize(
    "text",
    [
        "nope",
        "slow-health",
        "slow-health:soon",
        "stall:-1",
        "kill-on",
        "die-after-chunks:x",
        "close-idle:inf",
        "rate",
        "rate:0",
        "rate-delay:inf",
    ],
)
def test_a_fault_that_cannot_be_read_says_so(text: str):
    with pytest.raises(ValueError, match=text.partition(":")[0]):
        parse_faults([text])
