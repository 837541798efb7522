"""The requests that the doctor sends: short, never cached, and as long as they were asked to be."""

import random
import secrets

from msgspec import Struct

from gateway.doctor.seen import Shape

_WORDS = [
    "apple",
    "bread",
    "chair",
    "cloud",
    "dance",
    "earth",
    "field",
    "glass",
    "green",
    "horse",
    "house",
    "juice",
    "knife",
    "light",
    "money",
    "month",
    "mouth",
    "music",
    "night",
    "ocean",
    "paper",
    "piano",
    "plant",
    "point",
    "queen",
    "radio",
    "river",
    "salad",
    "sheep",
    "shirt",
    "smile",
    "snake",
    "spoon",
    "stone",
    "storm",
    "sugar",
    "table",
    "tiger",
    "train",
    "truck",
    "uncle",
    "voice",
    "watch",
    "water",
    "whale",
    "wheel",
    "woman",
    "world",
    "young",
    "zebra",
]
_TEMPLATE_TOKENS = 20
"""About what the first words and the last sentence of a prompt come to."""


class Form(Struct, frozen=True):
    """How an endpoint wants to be asked. `ignores_end` asks it not to stop early, which vLLM, SGLang and
    llama.cpp understand and others may refuse."""

    path: str
    is_chat: bool
    ignores_end: bool
    stream: bool
    says_usage: bool
    limit_field: str = "max_tokens"

    def body(self, model: str, shape: Shape) -> dict[str, object]:
        prompt = prompt_of(shape.prompt_tokens)
        body: dict[str, object] = {"model": model, self.limit_field: shape.output_tokens}
        if self.is_chat:
            body["messages"] = [{"role": "user", "content": prompt}]
        else:
            body["prompt"] = prompt
        if self.stream:
            body["stream"] = True
        if self.stream and self.says_usage:
            body["stream_options"] = {"include_usage": True}
        if self.ignores_end:
            body["ignore_eos"] = True
        return body


def forms(stream: bool) -> list[Form]:
    """In the order of trying: the first that is not refused is used."""
    chat, plain = "/v1/chat/completions", "/v1/completions"
    return [
        Form(chat, True, True, stream, True),
        Form(chat, True, False, stream, True),
        Form(chat, True, False, stream, False),
        Form(chat, True, False, stream, False, "max_completion_tokens"),
        Form(plain, False, True, stream, True),
        Form(plain, False, False, stream, False),
    ]


def prompt_of(tokens: int) -> str:
    """About `tokens` tokens that no cache holds: it begins with a number that nobody has sent before, since a
    cached prefix would make one request quicker than another."""
    count = max(0, tokens - _TEMPLATE_TOKENS)
    rng = random.Random(secrets.randbits(64))  # noqa: S311 - words, not secrets
    words = " ".join(rng.choices(_WORDS, k=count))
    return f"{secrets.token_hex(4)} {words} Count upwards from one, a number a line, and do not stop."
