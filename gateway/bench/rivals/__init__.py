"""Other routers' published rules, to be replayed beside ours."""

from gateway.bench.rivals.aibrix import Aibrix
from gateway.bench.rivals.base import Rival
from gateway.bench.rivals.cache_aware import SglangNew, SglangOld, VllmRouter
from gateway.bench.rivals.dynamo import DynamoApprox, DynamoEvents
from gateway.bench.rivals.kubeai import Kubeai
from gateway.bench.rivals.llmd import LlmdApprox, LlmdPrecise
from gateway.bench.rivals.lmetric import Lmetric
from gateway.bench.rivals.plain import LeastLoaded, RoundRobin, Sticky
from gateway.bench.rivals.preble import Preble
from gateway.bench.rivals.skywalker import Skywalker
from gateway.bench.rivals.stack import StackLoad, StackPrefix

RIVALS: dict[str, type[Rival]] = {
    "round_robin": RoundRobin,
    "least_loaded": LeastLoaded,
    "sticky": Sticky,
    "sglang": SglangOld,
    "sglang_new": SglangNew,
    "vllm_router": VllmRouter,
    "stack_prefix": StackPrefix,
    "stack_load": StackLoad,
    "llmd_approx": LlmdApprox,
    "llmd_precise": LlmdPrecise,
    "dynamo_events": DynamoEvents,
    "dynamo_approx": DynamoApprox,
    "aibrix": Aibrix,
    "kubeai": Kubeai,
    "preble": Preble,
    "lmetric": Lmetric,
    "skywalker": Skywalker,
}
"""Each is called with the engines' sights, the tokens of a block and a seeded `Random`; `source` of each says
in one line where its rule comes from."""

__all__ = ["RIVALS", "Rival"]
