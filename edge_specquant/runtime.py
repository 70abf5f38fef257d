"""The one knot: a family and settings to replies. The command line, chats and other people's Python use only this.

    with Runtime.local("demo") as runtime:
        for event in runtime.generate("Why is the sky blue?"):
            print(event.text, end="")
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType

from . import config
from .engine.events import TokenEvent
from .engine.kv_cache import OnProgress
from .engine.resident import Residents
from .engine.session import ReplyPlan, Session
from .engine.template import ChatTemplate, with_bos
from .errors import UsageError
from .gguf.convert import Progress, ensure_family
from .gguf.family import Family
from .native.library import log_sink
from .native.opening import open_model
from .native.protocol import DEFAULT_N_BATCH, ContextParams, Model
from .params import MAX_DRAFT
from .request import Request

DEFAULT_N_CTX = 4096
PREFERENCE = ("f16", "bf16", "q8", "q4")


@dataclass(frozen=True, slots=True)
class EngineOptions:
    """How the engine is set up: n_ctx and n_batch in tokens, threads (0: the engine's choice), layers on GPUs."""

    n_ctx: int | None = None
    n_batch: int = DEFAULT_N_BATCH
    n_threads: int = 0
    n_gpu_layers: int = 0
    target: str | None = None
    draft: str | None = None


class Runtime:
    """An opened family. Not for two replies at once; `cancel` may be called from any thread."""

    def __init__(self, family: Family, options: EngineOptions | None = None) -> None:
        self.family = family
        self.options = options or EngineOptions()
        self._residents = Residents(self._load, self._size_of)
        self._session = Session(self._residents, self._context_params)
        self._busy = threading.Lock()
        self._template: ChatTemplate | None = None

    @classmethod
    def local(
        cls, family: str | Path, options: EngineOptions | None = None, progress: Progress | None = None
    ) -> Runtime:
        """Opens a family in this process; `demo` is made at first use. Raises FamilyError, GGUFError."""
        _log_to_file()
        return cls(ensure_family(str(family), progress), options)

    def __enter__(self) -> Runtime:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Frees contexts and models; twice is fine."""
        self._residents.close()

    @property
    def default_target(self) -> str:
        """The variant that answers when a request names none: the most precise one."""
        if self.options.target:
            return self.family.variant(self.options.target).name
        return next((name for name in PREFERENCE if name in self.family.variants), next(iter(self.family.variants)))

    def default_draft(self, target: str) -> str:
        """Who drafts when a request names nobody: the family's 4-bit sibling for a larger target, else lookup."""
        if self.options.draft:
            return self.options.draft
        return "q4" if target in ("f16", "bf16") and "q4" in self.family.variants else "lookup"

    def generate(self, request: Request | str, on_prefill: OnProgress | None = None) -> Iterator[TokenEvent]:
        """Streams one reply; a string is a request with defaults. Raises errors of our tree before the first event."""
        if isinstance(request, str):
            request = Request(prompt=request)
        if not self._busy.acquire(blocking=False):
            raise UsageError("this runtime is answering another request; finish or cancel that first")
        try:
            self._session.resume()
            yield from self._session.reply(self._plan(request, on_prefill))
        finally:
            self._busy.release()

    def cancel(self) -> None:
        """Stops the running reply at the next graph node; it ends with finish_reason "cancelled"."""
        self._session.cancel()

    def siblings(self, request: Request) -> tuple[str, str]:
        """(target, draft) that would answer this request."""
        target = self.family.variant(request.target).name if request.target else self.default_target
        draft = request.speculation.draft or self.default_draft(target)
        if draft in ("none", "lookup"):
            return target, draft
        return target, self.family.variant(draft).name

    def tokens(self, request: Request) -> list[int]:
        """The prompt's token ids, template applied unless raw."""
        if request.prompt_tokens:
            return list(request.prompt_tokens)
        model = self._residents.get(self.siblings(request)[0]).model
        if request.raw:
            return with_bos(model.vocab.tokenize(request.prompt or "", parse_special=True), model.vocab)
        if self._template is None:
            self._template = ChatTemplate(model.chat_template, model.vocab)
        return self._template.tokens(request.as_messages())

    @property
    def notices(self) -> list[str]:
        """What the last reply had to do without, a line each."""
        return self._session.notices

    def _plan(self, request: Request, on_prefill: OnProgress | None) -> ReplyPlan:
        target, draft = self.siblings(request)
        return ReplyPlan(
            prompt=self.tokens(request),
            target=target,
            draft=draft,
            sampling=request.sampling,
            speculation=request.speculation,
            max_tokens=request.max_tokens,
            min_tokens=request.min_tokens,
            stops=request.stop,
            on_prefill=on_prefill,
        )

    def _load(self, variant: str) -> Model:
        return open_model(self.family.path(variant), n_gpu_layers=self.options.n_gpu_layers)

    def _size_of(self, variant: str) -> int:
        return self.family.variant(variant).n_bytes

    def _context_params(self, variant: str) -> ContextParams:
        trained = self._residents.get(variant).model.n_ctx_train or DEFAULT_N_CTX
        n_ctx = self.options.n_ctx or min(DEFAULT_N_CTX, trained)
        return ContextParams(
            n_ctx=n_ctx,
            n_batch=min(self.options.n_batch, n_ctx),
            max_rows=1 + MAX_DRAFT,
            n_threads=self.options.n_threads,
        )


def _log_to_file() -> None:
    """The engine's log goes to a file; a folder that cannot be written costs only the log."""
    try:
        log_sink.to_file(config.logs_dir() / "engine.log")
    except OSError:
        return
