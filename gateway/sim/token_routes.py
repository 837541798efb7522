"""The tokenizer's routes, in the shape of each engine kind."""

from aiohttp import web

from gateway.sim.ask import bad_request, chat_text, decode_body
from gateway.sim.replies import json_reply
from gateway.sim.settings import SimSettings
from gateway.sim.tokens import detokenize, tokenize

_TEXT_FIELDS = {"vllm": "prompt", "sglang": "text", "llamacpp": "content"}


def token_routes(settings: SimSettings) -> list[web.RouteDef]:
    """/tokenize and /detokenize; /apply-template on llama.cpp, which tokenizes only text."""

    async def to_tokens(request: web.Request) -> web.Response:
        body = decode_body(await request.read(), settings)
        if settings.kind == "llamacpp":
            return json_reply({"tokens": tokenize(str(body.get("content") or ""))})
        prompt = body.get("prompt")
        tokens = tokenize(prompt if isinstance(prompt, str) else chat_text(body, settings))
        answer = {"count": len(tokens), "max_model_len": settings.context_tokens, "tokens": tokens}
        return json_reply(answer if settings.kind == "sglang" else {**answer, "token_strs": None})

    async def to_text(request: web.Request) -> web.Response:
        tokens = decode_body(await request.read(), settings).get("tokens")
        if not isinstance(tokens, list) or not all(type(token) is int for token in tokens):
            raise bad_request(settings, "'tokens' is required", "tokens")
        return json_reply({_TEXT_FIELDS[settings.kind]: detokenize(tokens)})

    async def to_prompt(request: web.Request) -> web.Response:
        return json_reply({"prompt": chat_text(decode_body(await request.read(), settings), settings)})

    routes = [web.post("/tokenize", to_tokens), web.post("/detokenize", to_text)]
    if settings.kind == "llamacpp":
        routes.append(web.post("/apply-template", to_prompt))
    return routes
