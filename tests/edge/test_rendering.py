"""What an engine makes of a prompt, asked of one that answers, fails, or is not there."""

import json

import pytest

from gateway.core.engine import Facts, Probe
from gateway.core.facts import Billing
from gateway.edge.rendering import learn_billing
from gateway.engines.base import Answer

FACTS = Facts(kind="vllm", models=("m",))


class Engine:
    """Counts characters of what it shows to its model: the line goes, or its `cch`, or neither."""

    def __init__(self, billing: Billing, fails_at: int = 99, failure: Answer | Probe = Probe.SLOW) -> None:
        self.paths: list[str] = []
        self._billing, self._fails_at, self._failure = billing, fails_at, failure

    async def post(self, path: str, body: bytes) -> Answer | Probe:
        self.paths.append(path)
        if len(self.paths) > self._fails_at:
            return self._failure
        shown = "x-anthropic" in body.decode()
        tokens = 9 if not shown or self._billing is Billing.DROPPED else 40
        if shown and self._billing is Billing.KEPT:
            tokens += body.count(b"f")
        return Answer(status=200, headers={}, body=json.dumps({"input_tokens": tokens}).encode())


@pytest.mark.parametrize("billing", Billing)
async def test_each_api_is_learned_by_itself(billing: Billing):
    engine = Engine(billing)
    facts = await learn_billing(FACTS, engine.post)
    assert (facts.billing, facts.billing_elsewhere) == (billing, billing)
    assert engine.paths == ["/v1/messages/count_tokens"] * 3 + ["/tokenize"] * 3


@pytest.mark.parametrize("failure", [Probe.SLOW, Answer(status=404, headers={}, body=b"{}")])
async def test_an_engine_that_does_not_answer_is_not_asked_on_and_shows_it(failure: Answer | Probe):
    engine = Engine(Billing.DROPPED, fails_at=0, failure=failure)
    assert await learn_billing(FACTS, engine.post) == FACTS
    assert engine.paths == ["/v1/messages/count_tokens", "/tokenize"]
    engine = Engine(Billing.DROPPED, fails_at=3, failure=failure)
    facts = await learn_billing(FACTS, engine.post)
    assert (facts.billing, facts.billing_elsewhere) == (Billing.DROPPED, Billing.KEPT)


async def test_a_kind_of_which_nothing_is_known_is_asked_nothing():
    engine = Engine(Billing.DROPPED)
    assert await learn_billing(Facts(models=("m",)), engine.post) == Facts(models=("m",))
    assert engine.paths == []
