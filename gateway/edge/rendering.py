"""What an engine makes of a prompt, asked once in each of its lives."""

from collections.abc import Awaitable, Callable

from msgspec.structs import replace

from gateway.core.engine import Facts, Probe
from gateway.engines.base import Answer
from gateway.engines.rendering import (
    Question,
    billing_questions,
    order_question,
    read_billing,
    shows_tools_first,
    text_question,
)

Post = Callable[[str, bytes], Awaitable[Answer | Probe]]


async def learn_rendering(facts: Facts, post: Post) -> Facts:
    """`facts` with what becomes of Claude Code's billing line, and where tools stand. An engine that does not
    answer is taken to show the line, and tools after the system prompt."""
    learned = {}
    for field, questions in billing_questions(facts).items():
        answers: list[Answer] = []
        for question in questions:
            answer = await _answer(post, question)
            if answer is None:
                break
            answers.append(answer)
        learned[field] = read_billing(answers)
    return replace(facts, **learned, tools_first=await _tools_first(facts, post))


async def _tools_first(facts: Facts, post: Post) -> bool:
    answer = await _answer(post, order_question(facts))
    in_tokens = text_question(facts, answer) if answer is not None else None
    if in_tokens is not None:
        answer = await _answer(post, in_tokens)
    return answer is not None and shows_tools_first(answer)


async def _answer(post: Post, question: Question | None) -> Answer | None:
    answer = await post(*question) if question is not None else None
    return answer if isinstance(answer, Answer) and answer.status == 200 else None
