"""What stands before every route: errors as JSON, the Host header, the key, the body's size and time, the log.

Plain ASGI layers, so that a client's leaving reaches the routes. The log holds method, route, status and time: no path
and no body, since both are the caller's text.
"""

from __future__ import annotations

import abc
import asyncio
import ipaddress
import json
import logging
import time
from collections.abc import Awaitable, Callable

from starlette.datastructures import Headers
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from ..errors import ApiError, as_api_error
from ..metrics import Metrics
from ..options import Live
from .auth import accepts

log = logging.getLogger("edge_specquant.server")

ROUTES = (
    "/v1/chat/completions",
    "/v1/completions",
    "/v1/embeddings",
    "/v1/models",
    "/health",
    "/metrics",
    "/openapi.json",
)
OPEN_ROUTES = ("/health",)
_LOOPBACK_NAMES = ("localhost", "ip6-localhost")


def error_response(error: ApiError) -> JSONResponse:
    """The error as an HTTP answer."""
    return JSONResponse(error.as_dict(), error.status, error.headers)


class Guard(abc.ABC):
    """A layer over an app. Subclasses say in `check` why a request goes no further, or pass it on changed."""

    def __init__(self, app: ASGIApp, live: Live) -> None:
        self.app = app
        self.live = live

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            try:
                receive = await self.check(scope, receive)
            except ApiError as error:
                await error_response(error)(scope, receive, send)
                return
        await self.app(scope, receive, send)

    @abc.abstractmethod
    async def check(self, scope: Scope, receive: Receive) -> Receive:
        """What the app receives from. Raises ApiError to refuse."""


class HostGuard(Guard):
    """Without a key, only loopback names and the configured ones may stand in Host: no page can rebind its name."""

    async def check(self, scope: Scope, receive: Receive) -> Receive:
        options = self.live.options
        if options.api_key is None:
            name = host_name(Headers(scope=scope).get("host", ""))
            if not is_loopback(name) and name not in options.hosts:
                raise ApiError(403, "the Host header names another machine; use localhost or set an API key")
        return receive


class KeyGuard(Guard):
    """The API key, where one is set; /health is open."""

    async def check(self, scope: Scope, receive: Receive) -> Receive:
        key = self.live.options.api_key
        if key is None or scope["path"] in OPEN_ROUTES:
            return receive
        if not accepts(Headers(scope=scope).get("authorization", ""), key):
            raise ApiError(
                401,
                "the API key is missing or wrong; send it as 'Authorization: Bearer KEY'",
                code="invalid_api_key",
                headers={"WWW-Authenticate": "Bearer"},
            )
        return receive


class BodyGuard(Guard):
    """The whole body, within its size and time, before any work is done; JSON by its content type.

    The content type also keeps other sites' pages out: a browser asks before it sends JSON across origins.
    """

    async def check(self, scope: Scope, receive: Receive) -> Receive:
        if scope["method"] not in ("POST", "PUT", "PATCH"):
            return receive
        options = self.live.options
        headers = Headers(scope=scope)
        if headers.get("content-type", "").partition(";")[0].strip().lower() != "application/json":
            raise ApiError(415, "send the body as JSON, with Content-Type: application/json")
        length = headers.get("content-length", "0")
        if length.isdecimal() and int(length) > options.max_body_bytes:
            raise self._too_long()
        try:
            body = await asyncio.wait_for(self._body(receive), options.body_timeout_s)
        except (asyncio.TimeoutError, TimeoutError):
            raise ApiError(408, f"the body did not arrive within {options.body_timeout_s:g} s") from None
        if rb"\ud" in body.lower() and _has_half_pair(body):
            raise ApiError(400, "the body holds half of a surrogate pair, which is no text", code="invalid_json")
        return _replayed(body, receive)

    async def _body(self, receive: Receive) -> bytes:
        parts: list[bytes] = []
        n_bytes = 0
        while True:
            message = await receive()
            if message["type"] == "http.disconnect":
                raise ApiError(400, "the client left before the body was complete")
            parts.append(message.get("body", b""))
            n_bytes += len(parts[-1])
            if n_bytes > self.live.options.max_body_bytes:
                raise self._too_long()
            if not message.get("more_body", False):
                return b"".join(parts)

    def _too_long(self) -> ApiError:
        limit = self.live.options.max_body_bytes
        return ApiError(413, f"the body is larger than {limit} bytes", code="body_too_large")


class Outermost:
    """Nothing gets past it: an error becomes a JSON answer where none has begun, and every answer is logged."""

    def __init__(self, app: ASGIApp, metrics: Metrics) -> None:
        self._app = app
        self._metrics = metrics

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        begun, status = time.perf_counter(), 0

        async def watched(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
            await send(message)

        try:
            await self._app(scope, receive, watched)
        except Exception as error:
            failure = as_api_error(error)
            if not status:
                await error_response(failure)(scope, receive, watched)
        finally:
            route = route_name(scope["path"])
            self._metrics.answered(route, status)
            log.info("%s %s %s %.3fs", method_name(scope["method"]), route, status, time.perf_counter() - begun)


def route_name(path: str) -> str:
    """The route of a path, in words of ours."""
    if path in ROUTES:
        return path
    return "/v1/models/{model}" if path.startswith("/v1/models/") else "(no route)"


def method_name(method: str) -> str:
    """The method, if it is one that is known."""
    return method if method in ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS") else "(other)"


def host_name(header: str) -> str:
    """The name in a Host header, without port and brackets, in lower case."""
    if header.startswith("["):
        return header[1:].partition("]")[0].lower()
    return header.partition(":")[0].lower()


def is_loopback(name: str) -> bool:
    """Whether a name or an address means this machine only."""
    if name in _LOOPBACK_NAMES:
        return True
    try:
        return ipaddress.ip_address(name).is_loopback
    except ValueError:
        return False


def _has_half_pair(body: bytes) -> bool:
    """Whether a JSON text has an escape that stands for no character: nothing later could encode it."""
    try:
        json.dumps(json.loads(body), ensure_ascii=False).encode()
    except UnicodeEncodeError:
        return True
    except (ValueError, RecursionError):
        return False  # no JSON at all: the parser will say so
    return False


def _replayed(body: bytes, receive: Receive) -> Callable[[], Awaitable[Message]]:
    """A receive that gives the body once, then whatever comes (a disconnect)."""
    given = False

    async def replay() -> Message:
        nonlocal given
        if given:
            return await receive()
        given = True
        return {"type": "http.request", "body": body, "more_body": False}

    return replay
