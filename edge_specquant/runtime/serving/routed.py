"""The router inside the runtime: a request that names a policy gets its siblings from it, and its reply a record.

Takes a request, gives one with target, draft and controller filled in. Knows no models.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace

from ...engine.events import TokenEvent
from ...errors import FileError
from ...params import SpeculationParams
from ...request import Request
from ...routing.dispatcher import Decision, Dispatcher
from ...routing.policy.override import Override
from ...routing.records.record import append_record, default_file
from ..logs import logger

CountTokens = Callable[[str], int]


class Routed:
    """One dispatcher a policy, made when a request first names it."""

    def __init__(self) -> None:
        self._dispatchers: dict[str, Dispatcher] = {}
        self.notice: str | None = None

    def decide(self, request: Request, count: CountTokens, available: Iterable[str]) -> tuple[Request, Decision | None]:
        """The request as the policy would have it; what it names itself stays. Raises PlanError, UsageError."""
        if request.policy is None:
            return request, None
        if request.policy not in self._dispatchers:
            self._dispatchers[request.policy] = Dispatcher(request.policy)
        dispatcher = self._dispatchers[request.policy]
        messages = [m for m in request.as_messages() if m.get("role") == "user"] or [{"content": ""}]
        newest = _text_of(messages[-1].get("content", ""))
        decision = dispatcher.decide(
            newest,
            n_tokens=count(newest),
            available=available,
            history_turns=len(messages) - 1,
            max_output=request.max_tokens,
            override=_override(request),
        )
        self.notice = dispatcher.take_notice()
        route = decision.route
        return (
            replace(
                request,
                target=request.target or route.target,
                speculation=_with_route(request.speculation, route.draft, route.controller),
            ),
            decision,
        )

    def finish(self, event: TokenEvent, decision: Decision) -> TokenEvent:
        """The last event with its route; one line goes into the traffic file."""
        stats = event.stats
        if stats is not None:
            record = decision.record(
                n_prompt=stats.n_prompt,
                n_generated=stats.n_generated,
                ttft_s=None if stats.ttft_s is None else stats.ttft_s + decision.decide_s,
                decode_s=stats.decode_s,
                acceptance_rate=stats.acceptance_rate,
            )
            try:
                append_record(default_file(), record)
            except (FileError, OSError) as error:
                logger.warning("the route was not recorded: %s", error)
        return replace(event, route=decision.route.as_dict() | {"decide_s": decision.decide_s})


def _override(request: Request) -> Override | None:
    """What the request names itself, so that the record shows what really ran."""
    wish = request.speculation
    controller = None if wish.n_draft is None else f"fixed:{wish.n_draft}"
    if request.target is None and wish.draft is None and controller is None:
        return None
    return Override(target=request.target, draft=wish.draft, controller=controller)


def _text_of(content: object) -> str:
    """The text of a message; of content in parts, the text parts."""
    if isinstance(content, list):
        return "\n".join(str(part.get("text", "")) for part in content if isinstance(part, dict))
    return str(content)


def _with_route(wish: SpeculationParams, draft: str, controller: str) -> SpeculationParams:
    """'fixed:4' is a draft length; any other controller is a name. What the request fixed wins."""
    name, _, length = controller.partition(":")
    n_draft = wish.n_draft if wish.n_draft is not None else int(length) if length else None
    return replace(wish, draft=wish.draft or draft, n_draft=n_draft, controller=name)
