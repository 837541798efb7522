"""Prompts in segments, for tests of what compares them."""

from collections.abc import Sequence

from gateway.core.blocks import chain
from gateway.core.breakers import Arrival
from gateway.core.prompts import Pair, Prompt
from gateway.core.shapes import Segment, Shapes, outline

RULES = "\n".join(f"- rule {word}: think of {word} before you write" for word in "abcdefghijklmnopqrst")
OTHER_RULES = "\n".join(f"* always check the {word} file, then go on" for word in "abcdefghijklmnopqrst")


def system(*texts: str) -> list[Segment]:
    return [Segment("s", f"system[{at}]", text) for at, text in enumerate(texts)]


def tool(at: int, name: str, description: str = "It reads.", parameters: str = "{}") -> list[Segment]:
    return [
        Segment("n", f"tools[{at}].name", name),
        Segment("d", f"tools[{at}].description", description),
        Segment("p", f"tools[{at}].parameters", parameters),
    ]


def said(*texts: str) -> list[Segment]:
    """A user and an assistant by turns; what begins with `!` a system message in between."""
    return [
        Segment(
            "m", f"messages[{at}]", text, "system" if text[:1] == "!" else ("user", "assistant")[at % 2], at
        )
        for at, text in enumerate(texts)
    ]


def a_pair(
    old: Sequence[Segment],
    new: Sequence[Segment],
    before: Sequence[Segment] = (),
    after: Sequence[Segment] = (),
) -> Pair:
    """Shared segments `old` and `new`, with the messages `before` and `after`."""
    shapes = Shapes()
    for segments in (old, new, before, after):
        for key, segment in zip(outline(segments).digests, segments, strict=True):
            shapes.put(key, segment)
    prompts = Prompt(outline(old), outline(before)), Prompt(outline(new), outline(after))
    return Pair(*prompts, lambda: new, after, shapes.get)


def an_arrival(
    shared: Sequence[Segment],
    body: Sequence[Segment],
    *,
    session: int = 0,
    client: str = "a client",
    now: float = 0.0,
    model: str = "m",
) -> Arrival:
    canonical = "\n".join(it.role + it.text for it in (*shared, *body)).encode()
    return Arrival(
        session=session,
        model=model,
        blocks=chain(canonical, model),
        prompt_bytes=len(canonical),
        shared=lambda: list(shared),
        body=lambda first: [it for it in body if it.item >= first],
        client=lambda: client,
        bytes_per_token=4.0,
        now=now,
    )
