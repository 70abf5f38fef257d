"""Servers over HTTP as contestants: llama.cpp's own /completion, or OpenAI's chat completions. Standard library only.

Takes a URL, gives Samples timed by this side's clock from the first to the last piece of the stream. llama.cpp's server
gets the very token ids that our runtime uses; the others get the prompt as one user message.
"""

from __future__ import annotations

import json
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Protocol

from ...errors import EngineError
from ..measure.measurement import Case, Sample

TIMEOUT_S = 600.0
PromptIds = Callable[[Case], list[int]]


class HttpPeer(Protocol):
    """Somebody who answers over HTTP."""

    def measure(self, case: Case) -> Sample:
        """One greedy reply. Raises EngineError when the server fails."""
        ...


class LlamaServerPeer:
    """llama.cpp's server. prompt_ids None sends text and lets the server apply its own template."""

    def __init__(self, url: str, prompt_ids: PromptIds | None) -> None:
        self._url = url.rstrip("/")
        self._prompt_ids = prompt_ids

    def measure(self, case: Case) -> Sample:
        """Without its prompt cache, so that every run is cold."""
        prompt: Any = self._prompt_ids(case) if self._prompt_ids else self._templated(case.prompt)
        request = {
            "prompt": prompt,
            "n_predict": case.max_tokens,
            "temperature": 0,
            "stream": True,
            "cache_prompt": False,
            "return_tokens": True,
        }
        begun = time.perf_counter()
        first = last = None
        ids: list[int] = []
        timings: dict[str, Any] = {}
        for event in stream_events(f"{self._url}/completion", request):
            if event.get("tokens") or event.get("content"):
                last = time.perf_counter()
                first = first or last
            ids += event.get("tokens", [])
            timings = event.get("timings") or timings
        n_generated = int(timings.get("predicted_n") or len(ids))
        return Sample(
            n_prompt=timings.get("prompt_n"),
            n_generated=n_generated,
            ttft_s=first - begun if first else None,
            decode_s=last - first if first and last else 0.0,
            tokens=tuple(ids) if len(ids) == n_generated else (),  # half a character swallows its ids
            n_drafted=timings.get("draft_n"),
            n_accepted=timings.get("draft_n_accepted"),
        )

    def _templated(self, prompt: str) -> str:
        answer = post(f"{self._url}/apply-template", {"messages": [{"role": "user", "content": prompt}]})
        return str(answer["prompt"])


class CompletionsPeer:
    """Anything with /v1/completions that takes token ids. extra: further fields of the request."""

    def __init__(self, url: str, model: str, prompt_ids: PromptIds, extra: Mapping[str, Any]) -> None:
        self._url = url.rstrip("/").removesuffix("/v1")
        self._model = model
        self._prompt_ids = prompt_ids
        self._extra = dict(extra)

    def measure(self, case: Case) -> Sample:
        """One streamed reply at temperature 0."""
        request = {
            "model": self._model,
            "prompt": self._prompt_ids(case),
            "max_tokens": case.max_tokens,
            "temperature": 0,
            "stream": True,
            "stream_options": {"include_usage": True},
            **self._extra,
        }
        return _timed(f"{self._url}/v1/completions", request, lambda choice: bool(choice.get("text")))


class OpenAIPeer:
    """Anything with /v1/chat/completions. model None takes the first one the server lists."""

    def __init__(self, url: str, model: str | None) -> None:
        url = url.rstrip("/")
        self._url = url if url.endswith("/v1") else f"{url}/v1"
        self._model = model

    def measure(self, case: Case) -> Sample:
        """One streamed reply at temperature 0."""
        if self._model is None:
            self._model = self._first_model()
        request = {
            "model": self._model,
            "messages": [{"role": "user", "content": case.prompt}],
            "max_tokens": case.max_tokens,
            "temperature": 0,
            "stream": True,
            "stream_options": {"include_usage": True},
        }
        url = f"{self._url}/chat/completions"
        return _timed(url, request, lambda choice: bool(choice.get("delta", {}).get("content")))

    def _first_model(self) -> str:
        listed = get(f"{self._url}/models").get("data") or []
        if not listed:
            raise EngineError(f"{self._url} lists no model; name one: URL#model")
        return str(listed[0]["id"])


def _timed(url: str, request: dict[str, Any], has_text: Callable[[dict[str, Any]], bool]) -> Sample:
    """One streamed reply of an OpenAI API. has_text: whether a choice of a chunk shows something."""
    begun = time.perf_counter()
    first = last = None
    n_pieces = 0
    usage: dict[str, Any] = {}
    for event in stream_events(url, request):
        usage = event.get("usage") or usage
        if any(has_text(choice) for choice in event.get("choices", ())):
            n_pieces += 1
            last = time.perf_counter()
            first = first or last
    return Sample(
        n_prompt=usage.get("prompt_tokens"),
        n_generated=int(usage.get("completion_tokens") or n_pieces),
        ttft_s=first - begun if first else None,
        decode_s=last - first if first and last else 0.0,
    )


def is_llama_server(url: str) -> bool:
    """Whether /props answers as llama.cpp's server does. Raises EngineError when nobody answers at all."""
    try:
        return "default_generation_settings" in get(f"{url.rstrip('/')}/props")
    except _NoSuchPage:
        return False


def stream_events(url: str, request: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """The JSON objects of a server-sent event stream. Raises EngineError."""
    body = urllib.request.Request(url, json.dumps(request).encode(), {"Content-Type": "application/json"})
    with _opened(body) as answer:
        for line in answer:
            text = line.decode("utf-8", "replace").strip()
            if not text.startswith("data:") or text == "data: [DONE]":
                continue
            event = json.loads(text.removeprefix("data:"))
            if "error" in event:
                raise EngineError(f"{url} answered: {str(event['error'])[:200]}")
            yield event


def get(url: str) -> dict[str, Any]:
    """A JSON object. Raises EngineError."""
    with _opened(urllib.request.Request(url)) as answer:
        return _object(answer.read(), url)


def post(url: str, request: dict[str, Any]) -> dict[str, Any]:
    """The JSON answer to a JSON request. Raises EngineError."""
    body = urllib.request.Request(url, json.dumps(request).encode(), {"Content-Type": "application/json"})
    with _opened(body) as answer:
        return _object(answer.read(), url)


class _NoSuchPage(EngineError):
    """The server is there, the page is not."""


def _opened(request: urllib.request.Request) -> Any:
    try:
        return urllib.request.urlopen(request, timeout=TIMEOUT_S)
    except urllib.error.HTTPError as error:
        kind = _NoSuchPage if error.code in (404, 405, 501) else EngineError
        detail = error.read(300).decode("utf-8", "replace")
        raise kind(f"{request.full_url} answered {error.code}: {detail}") from error
    except (OSError, ValueError) as error:
        reason = getattr(error, "reason", error)
        raise EngineError(f"{request.full_url} cannot be reached ({reason}); is the server running?") from error


def _object(data: bytes, url: str) -> dict[str, Any]:
    try:
        found = json.loads(data)
    except ValueError:
        found = None
    if not isinstance(found, dict):
        raise EngineError(f"{url} did not answer with a JSON object")
    return found
