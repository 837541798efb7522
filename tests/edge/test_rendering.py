"""What an engine makes of a prompt, asked of one that answers, fails, or is not there."""

import json

import pytest

from gateway.core.engine import Facts, Probe
from gateway.core.facts import Billing
from gateway.edge.rendering import learn_rendering
from gateway.engines.base import Answer

FACTS = Facts(kind="vllm", models=("m",))


class Engine:
    """Counts characters of what it shows to its model: the line goes, or its `cch`, or neither."""

    def __init__(
        self,
        billing: Billing,
        fails_at: int = 99,
        failure: Answer | Probe = Probe.SLOW,
        tools_first: bool = False,
    ) -> None:
        self.paths: list[str] = []
        self._tools_first = tools_first
        self._billing, self._fails_at, self._failure = billing, fails_at, failure

    async def post(self, path: str, body: bytes) -> Answer | Probe:
        self.paths.append(path)
        if len(self.paths) > self._fails_at:
            return self._failure
        if path == "/detokenize":
            return _said(
                {"prompt": "<tools>zztoolzz</tools> zzsystemzz" if b"7" in body else "zzsystemzz zztoolzz"}
            )
        if b"zztoolzz" in body:
            return _said({"tokens": [7] if self._tools_first else [8], "count": 1})
        shown = "x-anthropic" in body.decode()
        tokens = 9 if not shown or self._billing is Billing.DROPPED else 40
        if shown and self._billing is Billing.KEPT:
            tokens += body.count(b"f")
        return _said({"input_tokens": tokens})


def _said(value: object) -> Answer:
    return Answer(status=200, headers={}, body=json.dumps(value).encode())


ORDER = ["/tokenize", "/detokenize"]


@pytest.mark.parametrize("billing", Billing)
async def test_each_api_is_learned_by_itself(billing: Billing):
    engine = Engine(billing)
    facts = await learn_rendering(FACTS, engine.post)
    assert (facts.billing, facts.billing_elsewhere) == (billing, billing)
    assert engine.paths == ["/v1/messages/count_tokens"] * 3 + ["/tokenize"] * 3 + ORDER


@pytest.mark.parametrize("failure", [Probe.SLOW, Answer(status=404, headers={}, body=b"{}")])
async def test_an_engine_that_does_not_answer_is_not_asked_on_and_shows_it(failure: Answer | Probe):
    engine = Engine(Billing.DROPPED, fails_at=0, failure=failure)
    assert await learn_rendering(FACTS, engine.post) == FACTS
    assert engine.paths == ["/v1/messages/count_tokens", "/tokenize", "/tokenize"]
    engine = Engine(Billing.DROPPED, fails_at=3, failure=failure)
    facts = await learn_rendering(FACTS, engine.post)
    assert (facts.billing, facts.billing_elsewhere) == (Billing.DROPPED, Billing.KEPT)


async def test_a_kind_of_which_nothing_is_known_is_asked_nothing():
    engine = Engine(Billing.DROPPED)
    assert await learn_rendering(Facts(models=("m",)), engine.post) == Facts(models=("m",))
    assert engine.paths == []


@pytest.mark.parametrize("tools_first", [True, False])
async def test_the_order_of_tools_and_system_prompt_is_learned_from_a_rendered_prompt(tools_first: bool):
    engine = Engine(Billing.KEPT, tools_first=tools_first)
    assert (await learn_rendering(FACTS, engine.post)).tools_first is tools_first


async def test_without_the_text_of_a_prompt_tools_come_after_the_system_prompt():
    engine = Engine(Billing.KEPT, tools_first=True, fails_at=7)
    assert not (await learn_rendering(FACTS, engine.post)).tools_first
    assert engine.paths[-2:] == ORDER
