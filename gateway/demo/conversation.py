"""What the agents of the demo say: deterministic texts, all different but for one shared system prompt."""

AGENTS = 6
TURNS = 4
ANSWER_TOKENS = 20
"""Longest answer. With some 1,400 prompt tokens at the end it keeps both phases within four minutes on two
cores, where one engine thread reads 55 to 180 tokens/s and writes 12 to 25."""

Message = dict[str, str]

# About 600 tokens under common vocabularies, 200 for each user text.
SYSTEM_PROMPT = """\
You are the review assistant of a team that builds and runs network services. Engineers send you \
descriptions of changes they are about to merge, one at a time, and you answer with the single most \
important remark.

How the team works. Every service has one owner and a short document that says what it promises: which \
calls it answers, how fast, how much memory it may use, and what happens when a dependency is slow or \
gone. A change that alters a promise alters the document in the same commit. A change that cannot be \
rolled back within five minutes needs a second reader and a written plan. Data formats are read in the \
old and the new form for one whole release before the old form goes away.

What you look for, in this order. First correctness: a state that can be reached and is not handled, a \
value that may be missing, an error that is swallowed, a lock that is held while something slow happens, \
a counter that goes up and never down. Second, behaviour under load: queues without a limit, retries \
without a pause, work done again for every request that could be done once, and anything whose cost grows \
with the number of clients instead of with the number of requests. Third, what happens at the end: is \
every file, socket, lease and timer given back when the caller leaves early, when the peer dies, and when \
the process is told to stop? Fourth, whether the test that comes with the change would fail without it. \
Names and layout come last, and only where a reader would be misled.

How you answer. One remark, at most two sentences, in plain words. Name the place first, then what goes \
wrong, then for whom. Do not repeat what the change does, do not praise it, and do not list alternatives. \
If a fact that you would need is not in the description, ask for that fact and nothing else. If the \
change is fine, answer only with the word fine. Earlier changes of the same conversation are part of the \
picture: when a later change breaks an assumption of an earlier one, say which. Numbers are in seconds, \
bytes and tokens unless the description says otherwise, and times are measured at the caller. Nobody \
reads your answer twice, so the first sentence must carry it.

House rules that you may take for granted. Time is passed in, never read inside a rule. Every limit has a \
unit in its name. A request has exactly one owner at any moment. Caches are bounded, and a miss is never \
an error. Logs hold no text that a client sent. Background work has a name, an owner and an end. A \
default is safe before it is fast. What runs below its promise says so where people look, and a figure \
that is not known is shown as unknown. Code that only tests use lives with the tests.
"""

_PLACES = (
    "the lease table", "the retry loop", "the header parser", "the connection pool", "the token counter",
    "the health probe", "the write buffer", "the session store", "the timer wheel", "the access log",
    "the drain handler",
)  # fmt: skip
_ACTIONS = (
    "now checks the deadline before it hands out a slot",
    "keeps the last answer for a minute instead of asking again",
    "counts a closed connection as a failure of the peer",
    "moves the slow lookup out of the section that holds the lock",
    "stops after three attempts and reports the first error",
    "reads the limit once at the start and not for every call",
    "splits a batch that is larger than the free space",
    "drops the oldest entry when the table is full",
    "waits for the flush before it answers the caller",
    "treats a missing field as unknown and not as zero",
    "closes the file in the branch that used to return early",
    "passes the identity of the caller on to the next stage",
    "merges two counters that were always read together",
)
_REASONS = (
    "because two of the nightly runs ended with a slot that nobody gave back",
    "because the old order let a late answer overwrite a newer one",
    "because a client that left early kept its place in the queue",
    "since the profile showed a third of the time spent there",
    "since the upstream service began to close idle connections after a minute",
    "as the memory of the process grew by a few megabytes every hour",
    "as the dashboard showed more requests running than were sent",
)
_SENTENCES = 7


def user_text(agent: int, turn: int) -> str:
    """What `agent` asks in `turn`, both from 1: some 200 tokens, with a beginning that no other text has."""
    start = agent * 31 + turn * 17
    lines = [f"Change {agent}.{turn}, from the branch of agent {agent}."]
    for number in range(_SENTENCES):
        at = start + number * (agent + 2 * turn)
        place = _PLACES[(at + number) % len(_PLACES)]
        action = _ACTIONS[(at * 3 + number) % len(_ACTIONS)]
        reason = _REASONS[(at + number * 5) % len(_REASONS)]
        lines.append(f"{place.capitalize()} {action}, {reason}.")
    lines.append("What is your remark?")
    return " ".join(lines)


def opening() -> list[Message]:
    return [{"role": "system", "content": SYSTEM_PROMPT}]
