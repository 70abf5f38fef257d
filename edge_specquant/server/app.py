"""The routes. Each parses, asks the engine, renders; everything else stands in the guards before it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Coroutine
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any, TypeVar

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse, Response
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.middleware.cors import CORSMiddleware

from .. import __version__
from .answers.chat import ChatAnswer
from .answers.completions import CompletionAnswer
from .answers.openapi import ErrorBody, ModelList, ModelObject, describe
from .answers.sse import EventStream, opened
from .answers.token_pieces import Pieces
from .errors import ApiError, from_validation, unreadable_body
from .http.guards import BodyGuard, HostGuard, KeyGuard, Outermost, error_response
from .metrics import Metrics
from .options import Live
from .queue import Engine, Reply
from .requests.bodies import ChatRequest, CompletionRequest
from .requests.catalog import Catalog
from .requests.translate import chat_job, completion_asks, prompts

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Services:
    """What the routes work with."""

    engine: Engine
    catalog: Catalog
    pieces: Pieces
    live: Live
    metrics: Metrics


def create_app(services: Services) -> FastAPI:
    """The application; its lifespan ends with the engine drained and closed."""

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        yield
        await asyncio.to_thread(services.engine.close)
        services.pieces.close()

    app = FastAPI(
        title="edge-specquant",
        version=__version__,
        lifespan=lifespan,
        docs_url=None,  # the pages would load scripts from elsewhere
        redoc_url=None,
        middleware=_layers(services),
    )
    app.add_exception_handler(RequestValidationError, _on_invalid)
    app.add_exception_handler(HTTPException, _on_http_error)
    app.add_exception_handler(ApiError, _on_api_error)
    _add_completions(app, services)
    _add_models(app, services)
    _add_watching(app, services)
    describe(app)
    return app


def _layers(services: Services) -> list[Middleware]:
    """From the outside in."""
    options = services.live.options
    layers = [Middleware(Outermost, metrics=services.metrics)]
    if options.cors_origins:
        # Never with credentials: a page may call with a key that it holds, not with a user's cookies.
        layers.append(
            Middleware(
                CORSMiddleware,
                allow_origins=list(options.cors_origins),
                allow_credentials=False,
                allow_methods=["GET", "POST"],
                allow_headers=["*"],
            )
        )
    return [*layers, *(Middleware(guard, live=services.live) for guard in (HostGuard, KeyGuard, BodyGuard))]


def _add_completions(app: FastAPI, services: Services) -> None:
    @app.post("/v1/chat/completions", responses=ANSWERS)
    async def chat_completions(body: ChatRequest, request: Request) -> Response:
        """A reply to a conversation."""
        needs_vocabulary = bool(body.logprobs or body.tools)
        template = await asyncio.to_thread(services.pieces.template) if needs_vocabulary else None
        job = chat_job(body, services.catalog, template)
        answer = ChatAnswer(body, services.pieces.piece, job.reader)
        return await _answer(services, request, answer, services.engine.submit(job.asks), bool(body.stream))

    @app.post("/v1/completions", responses=ANSWERS)
    async def completions(body: CompletionRequest, request: Request) -> Response:
        """The continuation of a text."""
        asks = completion_asks(body, services.catalog)
        if body.logprobs is not None:
            await asyncio.to_thread(services.pieces.vocab)
        echoes = await asyncio.to_thread(_echoes, body, services.pieces)
        answer = CompletionAnswer(body, services.pieces.piece, echoes)
        return await _answer(services, request, answer, services.engine.submit(asks), bool(body.stream))

    @app.post("/v1/embeddings", status_code=501, responses={501: {"model": ErrorBody}})
    async def embeddings() -> Response:
        """Not offered: siblings are made to write."""
        message = "embeddings are not supported; this server writes text"
        headers = {"x-should-retry": "false"}
        raise ApiError(501, message, kind="server_error", code="not_implemented", headers=headers)


def _echoes(body: CompletionRequest, pieces: Pieces) -> list[str]:
    """What stands in front of each prompt's choices."""
    if not body.echo:
        return [""] * len(prompts(body.prompt))
    return [part if isinstance(part, str) else pieces.text(part) for part in prompts(body.prompt)]


async def _answer(
    services: Services, request: Request, answer: ChatAnswer | CompletionAnswer, reply: Reply, stream: bool
) -> Response:
    """Waits for the whole answer, or for its beginning; a client that leaves meanwhile cancels the reply."""
    options = services.live.options
    try:
        if not stream:
            return JSONResponse(await _unless_gone(request, answer.whole(reply)))
        items = await _unless_gone(request, opened(reply, options.patience_s))
    except BaseException:
        reply.cancel()
        raise
    return EventStream(answer.chunks(items), reply, options)


async def _unless_gone(request: Request, work: Coroutine[Any, Any, T]) -> T:
    """The work's result. Raises ApiError 499 when the client leaves first."""
    working = asyncio.ensure_future(work)
    leaving = asyncio.ensure_future(_left(request))
    try:
        await asyncio.wait({working, leaving}, return_when=asyncio.FIRST_COMPLETED)
        if working.done():
            return working.result()
        raise ApiError(499, "the client left")
    finally:
        for task in (working, leaving):
            task.cancel()
        await asyncio.gather(working, leaving, return_exceptions=True)


async def _left(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass


def _add_models(app: FastAPI, services: Services) -> None:
    @app.get("/v1/models", response_model=ModelList)
    async def models() -> dict[str, Any]:
        """The siblings, and `auto`."""
        catalog = services.catalog
        return {"object": "list", "data": [catalog.model(name) for name in catalog.ids]}

    @app.get("/v1/models/{model}", response_model=ModelObject, responses={404: {"model": ErrorBody}})
    async def model(model: str) -> dict[str, Any]:
        """One of them."""
        return services.catalog.model(model)


def _add_watching(app: FastAPI, services: Services) -> None:
    @app.get("/health", responses={503: {}})
    async def health() -> Response:
        """200 while the engine can answer; a process that is gone is started again."""
        state = await asyncio.to_thread(lambda: services.engine.state)
        return JSONResponse({"status": state}, 200 if state == "ok" else 503)

    @app.get("/metrics", response_class=Response, responses={200: {"content": {"text/plain": {}}}})
    async def metrics() -> Response:
        """Prometheus counters."""
        return Response(services.metrics.text(), media_type="text/plain; version=0.0.4; charset=utf-8")


ANSWERS: dict[int | str, dict[str, Any]] = {
    200: {"content": {"application/json": {}, "text/event-stream": {}}},
    **{status: {"model": ErrorBody} for status in (400, 404, 408, 413, 415, 429, 500, 503, 504)},
}


async def _on_invalid(_: Request, error: Exception) -> Response:
    assert isinstance(error, RequestValidationError)
    return error_response(from_validation(error.errors()))


async def _on_http_error(_: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    if error.status_code == 400:  # FastAPI's word for whatever the JSON parser raised
        return error_response(unreadable_body(error.__cause__))
    said = {404: "there is nothing at this address", 405: "this address does not take this method"}
    message = said.get(error.status_code, str(error.detail))
    return error_response(ApiError(error.status_code, message, headers=error.headers))


async def _on_api_error(_: Request, error: Exception) -> Response:
    assert isinstance(error, ApiError)
    return error_response(error)
