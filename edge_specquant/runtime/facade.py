"""Runtime: the one object that command line, chats, servers and other people's Python use.

Two engines stand behind it with one interface: in this process (`local.py`) and in a child process (`process.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import Any, Protocol

from ..engine.events import TokenEvent
from ..errors import FamilyError
from ..gguf.family.family import Family
from ..request import Request
from .conversation import ChatMessage, Conversation
from .logs import ENGINE_LOG, FRONT_END_LOG, log_here
from .options import EngineOptions, OnPrefill
from .reply import Reply
from .serving.parted import Parted
from .status import Status

DEMO = "demo"
Progress = Callable[[str, int, int], None]
"""Called with (what is being done, done_bytes, total_bytes) while the demo family is made."""


class Engine(Protocol):
    """What answers requests."""

    notices: list[str]

    def generate(self, request: Request, on_prefill: OnPrefill | None = None) -> Reply:
        """One reply; errors of our tree are raised by its first step."""
        ...

    def cancel(self) -> None:
        """Cancels the reply being written and all that wait."""
        ...

    def tokens(self, request: Request) -> list[int]:
        """The prompt's token ids."""
        ...

    def siblings(self, request: Request) -> tuple[str, str]:
        """(target, draft) that would answer."""
        ...

    def is_ready(self) -> bool:
        """Whether it can answer now; one whose process is gone is started again."""
        ...

    def status(self) -> Status:
        """What it is doing."""
        ...

    def close(self) -> None:
        """Frees everything; twice is fine."""
        ...


class Runtime:
    """An opened family, ready to answer. Requests from any thread are answered in the order they come."""

    def __init__(
        self, family: Family, options: EngineOptions, engine: Engine, standing_notices: tuple[str, ...] = ()
    ) -> None:
        self.family = family
        self.options = options
        self._engine = engine
        self._standing_notices = standing_notices

    @classmethod
    def local(
        cls, family: str | Path, options: EngineOptions | None = None, progress: Progress | None = None
    ) -> Runtime:
        """Opens a family in this process; `demo` is made at first use. Raises FamilyError, GGUFError."""
        from .local import LocalEngine

        chosen = options or EngineOptions()
        notice = log_here(ENGINE_LOG, native=True, debug=chosen.debug)
        opened = _open_family(str(family), progress)
        return cls(opened, chosen, LocalEngine(opened, chosen), (notice,) if notice else ())

    @classmethod
    def process(
        cls, family: str | Path, options: EngineOptions | None = None, progress: Progress | None = None
    ) -> Runtime:
        """The same with the engine in a child process: when it dies, this one learns, says why and starts another.

        The child starts at once and loads a model with the first request. Raises FamilyError, GGUFError, EngineError.
        """
        from .process.process_engine import ProcessEngine

        chosen = options or EngineOptions()
        notice = log_here(FRONT_END_LOG, native=False, debug=chosen.debug)
        opened = _open_family(str(family), progress)
        engine = ProcessEngine(opened, chosen)
        engine.start()
        return cls(opened, chosen, engine, (notice,) if notice else ())

    def __enter__(self) -> Runtime:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Frees contexts and models, ends the child process; twice is fine."""
        self._engine.close()

    def generate(self, request: Request | str, on_prefill: OnPrefill | None = None) -> Reply:
        """Streams one reply; a string is a request with defaults.

        Its first step waits for the requests before it, and raises the errors of our tree.
        """
        return self._engine.generate(Request(prompt=request) if isinstance(request, str) else request, on_prefill)

    def chat(
        self,
        conversation: Conversation,
        message: str | None = None,
        *,
        on_prefill: OnPrefill | None = None,
        **request_fields: Any,
    ) -> Reply:
        """Says `message` and streams the reply; both are appended to the conversation, a partial reply too.

        message None writes the last reply again. request_fields are those of Request: sampling, target ...
        """
        if message is None:
            conversation.drop_reply()
        else:
            conversation.say(message)
        request = Request(messages=conversation.as_messages(), system=conversation.system, **request_fields)
        reply = self.generate(request, on_prefill)
        return Reply(_recorded(conversation, reply), reply.cancel)

    def cancel(self) -> None:
        """Stops the reply being written at the next graph node, and those that wait; each ends as "cancelled".

        Call from any thread. One reply alone is stopped by its own `cancel`.
        """
        self._engine.cancel()

    def is_ready(self) -> bool:
        """Whether the engine can answer now; one whose process is gone is started again. Call from any thread."""
        return self._engine.is_ready()

    def status(self) -> Status:
        """What is in memory, who waits, what went wrong. Call from any thread."""
        status = self._engine.status()
        return replace(status, notices=(*self._standing_notices, *status.notices))

    def tokens(self, request: Request | str) -> list[int]:
        """The prompt's token ids as the target will see them."""
        return self._engine.tokens(Request(prompt=request) if isinstance(request, str) else request)

    def siblings(self, request: Request) -> tuple[str, str]:
        """(target, draft) that would answer this request. Raises FamilyError for a variant there is not."""
        return self._engine.siblings(request)

    @property
    def default_target(self) -> str:
        """The variant that answers when a request names none."""
        return self.siblings(Request(prompt="Hello"))[0]

    @property
    def notices(self) -> list[str]:
        """What the last reply, and this runtime altogether, had to do without, a line each."""
        return [*self._standing_notices, *self._engine.notices]


def _open_family(name: str, progress: Progress | None) -> Family:
    try:
        return Family.open(name)
    except FamilyError:
        if name != DEMO:
            raise
    from ..gguf.convert.convert import ensure_family  # what makes families is heavy to import

    return ensure_family(name, progress)


def _recorded(conversation: Conversation, reply: Reply) -> Generator[TokenEvent, None, None]:
    """Passes events on and puts the reply into the conversation when it ends, however it ends."""
    said = Parted()
    finish_reason = "cancelled"  # closed early
    try:
        with reply:
            for event in reply:
                said.take(event)
                if event.finish_reason:
                    finish_reason = event.finish_reason
                    _append(conversation, said, finish_reason)
                yield event
    finally:
        if finish_reason == "cancelled":
            _append(conversation, said, finish_reason)


def _append(conversation: Conversation, said: Parted, finish_reason: str) -> None:
    if said.text and (not conversation.messages or conversation.messages[-1].role != "assistant"):
        made = ChatMessage("assistant", said.text, tuple(said.answer_ids), finish_reason, said.thought)
        conversation.messages.append(made)
