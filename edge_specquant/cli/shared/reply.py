"""Runs a reply in a worker thread, so that Ctrl-C in the main thread stops it at once."""

from __future__ import annotations

import queue
import threading
from collections.abc import Iterator

from ...engine.events import TokenEvent
from ...request import Request
from ...runtime import Runtime
from ...units import format_rate, format_seconds


def events(runtime: Runtime, request: Request) -> Iterator[TokenEvent]:
    """The runtime's events; Ctrl-C cancels the reply and its last event still comes. Raises what the reply raises."""
    channel: queue.SimpleQueue[TokenEvent | BaseException | None] = queue.SimpleQueue()

    def work() -> None:
        try:
            for event in runtime.generate(request):
                channel.put(event)
            channel.put(None)
        except BaseException as error:
            channel.put(error)

    worker = threading.Thread(target=work, name="engine", daemon=True)
    worker.start()
    try:
        while (item := _next(channel, runtime)) is not None:
            if isinstance(item, BaseException):
                raise item
            yield item
    finally:
        runtime.cancel()
        worker.join()


def _next(
    channel: queue.SimpleQueue[TokenEvent | BaseException | None], runtime: Runtime
) -> TokenEvent | BaseException | None:
    while True:
        try:
            return channel.get(timeout=0.2)  # a time-out, since an endless get cannot be interrupted on Windows
        except queue.Empty:
            continue
        except KeyboardInterrupt:
            runtime.cancel()


def stats_line(event: TokenEvent, target: str, draft: str) -> str:
    """One line of figures for a person; unknown ones are left out."""
    stats = event.stats
    if stats is None:
        return ""
    parts = [f"{stats.n_generated} tokens", format_rate(stats.tokens_per_s) if stats.tokens_per_s else ""]
    parts.append(f"first token {format_seconds(stats.ttft_s)}" if stats.ttft_s is not None else "")
    parts.append(f"{target} with {draft} drafting" if draft != "none" else f"{target} alone")
    if stats.acceptance_rate is not None:
        parts.append(f"{stats.acceptance_rate:.0%} of {stats.n_drafted} draft tokens accepted")
    parts.append(f"prompt {stats.n_prompt} tokens" + (f", {stats.n_cached} reused" if stats.n_cached else ""))
    return " · ".join(part for part in parts if part)
