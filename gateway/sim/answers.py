"""The answers of each engine kind: JSON bodies and SSE events, in the form its serialiser gives them.

After vLLM 0.32, SGLang 0.5.18 and llama-server b10434. Where they differ the difference is kept: with what
content the role comes, where `finish_reason` stands, when usage comes and what it holds.
"""

from typing import Any

from gateway.sim.ask import Ask
from gateway.sim.work import Event, Job

Json = dict[str, Any]

_FINGERPRINTS = {"vllm": "vllm-0.32.0-sim", "sglang": None, "llamacpp": "b10434-sim"}
_EMBEDDING_DIMENSIONS = 8


class Writer:
    """Writes one answer. `created` is Unix time in seconds."""

    def __init__(self, *, kind: str, model: str, ask: Ask, job: Job, created: int) -> None:
        self._kind = kind
        self._model = model
        self._ask = ask
        self._job = job
        self._created = created
        self._has_started: set[int] = set()

    def whole(self) -> Json:
        """The JSON answer of a job that has finished."""
        if self._ask.api == "embedding":
            return self._embeddings()
        choices = [self._whole_choice(index) for index in range(len(self._ask.outputs))]
        answer = {**self._head("chat.completion" if self._is_chat else "text_completion"), "choices": choices}
        answer["usage"] = self._usage()
        if self._kind == "llamacpp":
            answer["timings"] = self._timings()
        elif self._kind == "sglang" and self._ask.wants_cache_details:
            answer["sglext"] = self._cache_details()
        return answer

    def chunks(self, event: Event) -> list[Json]:
        """The SSE events of one token. A role comes with the first token, not before."""
        chunks = self._roles(event.choice) if self._is_chat else []
        piece = self._ask.pieces[event.choice][event.emitted - 1]
        # vLLM ends a choice with its last token, the others with a chunk of its own.
        ends_here = event.is_last and self._kind == "vllm"
        if self._is_chat:
            chunks += [
                self._chat_chunk(event.choice, delta, ends_here) for delta in self._deltas(event, piece)
            ]
        else:
            chunks.append(self._text_chunk(event.choice, piece, ends_here))
        return chunks

    def choice_end(self, choice: int) -> list[Json]:
        """What follows the last token of one choice."""
        if self._kind == "vllm":
            return []
        if not self._is_chat:
            return [self._text_chunk(choice, "", True)]
        return [self._chat_chunk(choice, {}, True)]

    def tail(self) -> list[Json]:
        """What follows all choices, before [DONE]."""
        ask = self._ask
        tail = []
        if self._kind == "sglang" and ask.wants_cache_details:
            tail.append({**self._chunk_head(), "choices": [], "usage": None, "sglext": self._cache_details()})
        # A llama.cpp completion has its usage in the finish chunk instead.
        if ask.include_usage and (self._is_chat or self._kind != "llamacpp"):
            usage = {**self._chunk_head(), "choices": [], "usage": self._usage()}
            if self._kind == "llamacpp":
                usage["timings"] = self._timings()
            tail.append(usage)
        return tail

    @property
    def _is_chat(self) -> bool:
        return self._ask.api == "chat"

    def _head(self, object_name: str) -> Json:
        prefix = "chatcmpl" if self._is_chat or self._kind == "llamacpp" else "cmpl"
        head: Json = {
            "id": f"{prefix}-sim{self._job.id:08x}",
            "object": object_name,
            "created": self._created,
            "model": self._model,
        }
        if self._kind != "sglang":
            head["system_fingerprint"] = _FINGERPRINTS[self._kind]
        return head

    def _chunk_head(self) -> Json:
        return self._head("chat.completion.chunk" if self._is_chat else "text_completion")

    def _roles(self, choice: int) -> list[Json]:
        # vLLM opens all choices with the first token of any, the others each with its own.
        opened = range(len(self._ask.outputs)) if self._kind == "vllm" else (choice,)
        fresh = [index for index in opened if index not in self._has_started]
        self._has_started.update(fresh)
        delta: Json = {"role": "assistant", "content": None if self._kind == "llamacpp" else ""}
        if self._kind == "sglang":
            delta = {"reasoning_content": None, **delta}
        return [self._chat_chunk(index, delta, False) for index in fresh]

    def _deltas(self, event: Event, piece: str) -> list[Json]:
        call = self._ask.tool_call
        if call is None:
            delta: Json = {"content": piece}
            return [{"reasoning_content": None, **delta} if self._kind == "sglang" else delta]
        if event.emitted == 1:
            function = {"name": call.name, "arguments": ""}
            head = {"index": 0, "id": self._call_id(event.choice), "type": "function", "function": function}
            return [{"tool_calls": [head]}]
        return [{"tool_calls": [{"index": 0, "function": {"arguments": piece}}]}] if piece else []

    def _chat_chunk(self, choice: int, delta: Json, is_end: bool) -> Json:
        reason = self._ask.finish_reason if is_end else None
        if self._kind == "llamacpp":
            chunk: Json = {"choices": [{"finish_reason": reason, "index": choice, "delta": delta}]}
            chunk.update(self._chunk_head())
            # The timings ride on the finish chunk unless a usage chunk follows.
            if is_end and not self._ask.include_usage:
                chunk["timings"] = self._timings()
            return chunk
        body: Json = {"index": choice, "delta": delta, "logprobs": None, "finish_reason": reason}
        body["stop_reason" if self._kind == "vllm" else "matched_stop"] = None
        return {**self._chunk_head(), "choices": [body]}

    def _text_chunk(self, choice: int, text: str, is_end: bool) -> Json:
        reason = self._ask.finish_reason if is_end else None
        body: Json = {"index": choice, "text": text, "logprobs": None, "finish_reason": reason}
        chunk = {"choices": [body], **self._chunk_head()}
        if self._kind != "llamacpp":
            body["stop_reason" if self._kind == "vllm" else "matched_stop"] = None
        elif is_end:
            chunk["usage"] = self._usage()
            chunk["timings"] = self._timings()
        return chunk

    def _whole_choice(self, index: int) -> Json:
        text = "".join(self._ask.pieces[index])
        choice: Json = {"index": index}
        if not self._is_chat:
            choice["text"] = text
        elif self._ask.tool_call is None:
            choice["message"] = {"role": "assistant", "content": text}
        else:
            call = self._ask.tool_call
            function = {"name": call.name, "arguments": call.arguments}
            made = {"id": self._call_id(index), "type": "function", "function": function}
            choice["message"] = {"role": "assistant", "content": None, "tool_calls": [made]}
        choice["logprobs"] = None
        choice["finish_reason"] = self._ask.finish_reason
        return choice

    def _call_id(self, choice: int) -> str:
        return f"call-sim{self._job.id:08x}{choice}"

    def _embeddings(self) -> Json:
        data = [
            {"object": "embedding", "index": index, "embedding": _vector(prompt)}
            for index, prompt in enumerate(self._ask.prompts)
        ]
        tokens = self._job.prompt_tokens
        usage = {"prompt_tokens": tokens, "total_tokens": tokens}
        return {"object": "list", "model": self._model, "data": data, "usage": usage}

    def _usage(self) -> Json:
        prompt, completion, cached = (
            self._job.prompt_tokens,
            self._job.completion_tokens,
            self._job.cached_tokens,
        )
        usage: Json = {
            "prompt_tokens": prompt,
            "total_tokens": prompt + completion,
            "completion_tokens": completion,
            "prompt_tokens_details": {"cached_tokens": cached},
        }
        if self._kind == "sglang":
            # With its cache report on, SGLang still says nothing at zero.
            usage["prompt_tokens_details"] = {"cached_tokens": cached} if cached else None
            usage["reasoning_tokens"] = 0
        return usage

    def _cache_details(self) -> Json:
        return {"cached_tokens_details": {"device": self._job.cached_tokens, "host": 0}}

    def _timings(self) -> Json:
        job = self._job
        evaluated, predicted = job.prompt_tokens - job.cached_tokens, job.completion_tokens
        prompt_ms = _elapsed_ms(job.started_at, job.prompt_done_at)
        # With several choices the first to end has no end of the whole job yet.
        predicted_ms = _elapsed_ms(job.prompt_done_at, job.finished_at)
        return {
            "cache_n": job.cached_tokens,
            "prompt_n": evaluated,
            "prompt_ms": prompt_ms,
            "prompt_per_token_ms": prompt_ms / evaluated,
            "prompt_per_second": evaluated * 1000 / prompt_ms if prompt_ms else 0.0,
            "predicted_n": predicted,
            "predicted_ms": predicted_ms,
            "predicted_per_token_ms": predicted_ms / max(1, predicted),
            "predicted_per_second": predicted * 1000 / predicted_ms if predicted_ms else 0.0,
        }


def _elapsed_ms(start: float | None, end: float | None) -> float:
    return 0.0 if start is None or end is None else (end - start) * 1000


def _vector(prompt: tuple[int, ...]) -> list[float]:
    seed = hash(prompt)
    return [((seed >> (8 * index)) & 0xFF) / 255 for index in range(_EMBEDDING_DIMENSIONS)]
