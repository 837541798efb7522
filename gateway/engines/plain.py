"""What dialects have in common. Each overrides what its engine does differently."""

from gateway.core.call import Call, Prepared
from gateway.core.engine import LoadReport, Probe
from gateway.engines.base import Answer
from gateway.engines.inject import ask_for_usage
from gateway.engines.reading import serving

_USAGE_PATHS = frozenset({"/v1/chat/completions", "/v1/completions"})

TOLD_BY_ITSELF = "it tells them by itself: something before it may drop the usage of its answers"
"""Of engines that tell cached tokens without being asked."""


class PlainDialect:
    """Nothing tells the engine's process or its load, and calls go as they came.

    `inject_usage` is taken for symmetry: these engines report enough without it, or may refuse the option.
    """

    load_path: str | None = None
    cap_setting = ""
    cached_setting = "its usage has no cached tokens; its own documentation says whether they can be had"

    def __init__(self, inject_usage: bool = True) -> None:
        del inject_usage

    def read_health(self, answer: Answer) -> Probe:
        return serving(answer)

    def read_identity(self, answer: Answer) -> str | None:
        del answer
        return None

    def read_load(self, answer: Answer, asked_at: float) -> LoadReport | None:
        del answer, asked_at
        return None

    def prepare(self, call: Call) -> Prepared:
        return Prepared(path=call.path, headers=call.headers, body=call.body)


class AskingDialect(PlainDialect):
    """Asks for usage on streams whose client did not say: without it the engine reports no cached tokens.

    `inject_usage` False is `usage.inject: off`: streams are sent on as the client wrote them.
    """

    def __init__(self, inject_usage: bool = True) -> None:
        self._inject_usage = inject_usage

    def prepare(self, call: Call) -> Prepared:
        body, withhold = call.body, False
        if self._inject_usage and call.stream and call.include_usage is None and call.path in _USAGE_PATHS:
            asking = ask_for_usage(call.body)
            if asking is not None:
                body, withhold = asking, True
        return Prepared(path=call.path, headers=call.headers, body=body, withhold_usage=withhold)
