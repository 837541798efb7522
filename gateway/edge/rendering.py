"""What an engine makes of a prompt, asked once in each of its lives."""

from collections.abc import Awaitable, Callable

from msgspec.structs import replace

from gateway.core.engine import Facts, Probe
from gateway.engines.base import Answer
from gateway.engines.rendering import billing_questions, read_billing

Post = Callable[[str, bytes], Awaitable[Answer | Probe]]


async def learn_billing(facts: Facts, post: Post) -> Facts:
    """`facts` with what becomes of Claude Code's billing line. An engine that does not answer shows it."""
    learned = {}
    for field, questions in billing_questions(facts).items():
        answers: list[Answer] = []
        for path, body in questions:
            answer = await post(path, body)
            if isinstance(answer, Probe) or answer.status != 200:
                break
            answers.append(answer)
        learned[field] = read_billing(answers)
    return replace(facts, **learned)
