"""What the chat's tests share: the real app on a runtime of scripted models, and what its screen says.

Where a line wraps depends on what stands in it (a temporary path, a name), so tests ask `Chat.shows`, which reads
each widget without its wrapping; `Chat.text` is for the few that are about lines.
"""

from __future__ import annotations

import asyncio
import contextlib
import tempfile
import time
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from patience import PATIENCE_S
from textual.pilot import Pilot

from edge_specquant.gguf.family.family import Family, Variant
from edge_specquant.native.fake import N_BYTES, FakeContext, FakeModel, FakeVocab, NextLogits, one_hot
from edge_specquant.native.protocol import ContextParams, Model
from edge_specquant.params import SamplingParams, SpeculationParams
from edge_specquant.runtime import EngineOptions, Runtime
from edge_specquant.runtime.local import LocalEngine
from edge_specquant.store import Store
from edge_specquant.tui.app import ChatApp, ChatSettings
from edge_specquant.tui.engine import Progress
from edge_specquant.tui.screens.chat import ChatScreen
from edge_specquant.tui.widgets.prompt import Prompt

ASSISTANT = b"Assistant:"  # how the template without control markers ends a prompt
FRAMES = frozenset(map(chr, range(0x2500, 0x25A0)))  # box drawing and blocks


def saying(reply: str | bytes) -> NextLogits:
    """Always answers this, byte by byte."""
    data = reply.encode() if isinstance(reply, str) else reply

    def next_logits(history: Sequence[int]) -> Any:
        said = bytes(token for token in history if token < N_BYTES)
        done = len(said) - said.rfind(ASSISTANT) - len(ASSISTANT)
        return one_hot(data[done] if 0 <= done < len(data) else N_BYTES)

    return next_logits


def endless(history: Sequence[int]) -> Any:
    """a, b, c ... for ever."""
    return one_hot(97 + len(history) % 26)


@dataclass
class SlowModel(FakeModel):
    """A fake whose every decode takes pause_s."""

    pause_s: float = 0.0

    def context(self, params: ContextParams) -> FakeContext:
        made = FakeModel.context(self, params)
        made.before_decode = lambda: time.sleep(self.pause_s)
        return made


@dataclass
class Rig:
    """One app. `models` answers by sibling; open_error makes opening fail."""

    models: dict[str, NextLogits]
    pause_s: float = 0.0
    n_ctx: int = 4096
    family: str | None = "fake"
    name: str = "fake"
    max_tokens: int | None = 400
    draft: str = "lookup"
    size: tuple[int, int] = (120, 40)
    temperature: float = 0.0
    opener: Callable[[str, bool, Progress], Runtime] | None = None
    store: Store = field(default_factory=Store.in_memory)
    folder: Path | None = None
    notifications: bool = False
    vocab: FakeVocab = field(default_factory=FakeVocab)
    first_conversation: Callable[[Store], int] | None = None

    def runtime(self, *_: object) -> Runtime:
        """A runtime over the fakes."""
        variants = {name: Variant(name, Path(f"{name}.gguf"), 1000, 8.0, {}, name, None) for name in self.models}
        family = Family(self.name, Path("nowhere"), variants, None)
        options = EngineOptions(n_ctx=self.n_ctx)

        def open_variant(name: str, _: Any) -> Model:
            return SlowModel(self.models[name], pause_s=self.pause_s, vocab=self.vocab)

        return Runtime(family, options, LocalEngine(family, options, open_variant))

    def request_fields(self) -> dict[str, Any]:
        """What the command line would give."""
        return {
            "sampling": SamplingParams(temperature=self.temperature),
            "speculation": SpeculationParams(draft=self.draft),
            "max_tokens": self.max_tokens,
        }

    def settings(self) -> ChatSettings:
        """What the app is made from."""
        return ChatSettings(
            opener=self.opener or self.runtime,
            open_store=lambda: self.store,
            request_fields=self.request_fields,
            family=self.family,
            preferences_path=(self.folder or Path(tempfile.mkdtemp())) / "chat.json",
            first_conversation=self.first_conversation,
        )

    @contextlib.asynccontextmanager
    async def chat(self, *, wait: bool = True) -> AsyncIterator[Chat]:
        """The app on a screen of this size; waits until the model is there."""
        app = ChatApp(self.settings())
        try:
            async with app.run_test(size=self.size, notifications=self.notifications) as pilot:
                chat = Chat(app, pilot)
                if wait:
                    await chat.until(lambda: chat.screen.facts is not None)
                yield chat
        finally:
            app.release()


@dataclass
class Chat:
    """A running app and its pilot."""

    app: ChatApp
    pilot: Pilot[None]

    @property
    def screen(self) -> ChatScreen:
        return next(screen for screen in self.app.screen_stack if isinstance(screen, ChatScreen))

    @property
    def text(self) -> str:
        """The screen, line by line."""
        strips = self.app.screen._compositor.render_strips()
        return "\n".join(strip.text.rstrip() for strip in strips)

    def shows(self, *wanted: str) -> bool:
        """Whether each of these is drawn in some widget, wherever its lines wrap (white space does not count)."""
        drawn = [unwrapped(text) for text in self._drawn()]
        return all(any(unwrapped(words) in text for text in drawn) for words in wanted)

    def _drawn(self) -> Iterator[str]:
        """What is seen of each widget."""
        compositor = self.app.screen._compositor
        strips = compositor.render_strips()
        for region, clip in compositor.visible_widgets.values():
            seen = region.intersection(clip)
            yield "\n".join(strip.crop(seen.x, seen.right).text for strip in strips[seen.y : seen.bottom])

    async def until(self, condition: Callable[[], object]) -> None:
        """Lets the app run until the condition holds."""
        end = time.monotonic() + PATIENCE_S
        while not condition():
            assert time.monotonic() < end, f"waited {PATIENCE_S} s in vain; the screen:\n{self.text}"
            await self.pilot.pause(0.02)
        await self.pilot.pause()

    async def say(self, text: str, *, wait: bool = True) -> None:
        """Types and sends; waits for the answer."""
        self.screen.query_one(Prompt).put(text)
        n_before = len(self.screen.dialogue.messages())
        await self.pilot.press("enter")
        await self.until(lambda: len(self.screen.dialogue.messages()) > n_before)
        if wait:
            await self.answered()

    async def answered(self) -> None:
        """Waits until no answer is arriving and the last one is drawn."""
        state = self.screen.query_one("#state")
        await self.until(lambda: not self.screen.running and not state.has_class("busy"))
        await self.pilot.pause()

    async def press(self, *keys: str) -> None:
        """Presses keys and lets their work finish."""
        await self.pilot.press(*keys)
        await self.pilot.pause()

    @property
    def messages(self) -> list[str]:
        """Texts of the branch on show."""
        return [message.text for message in self.screen.dialogue.messages()]


def unwrapped(text: str) -> str:
    """The text without white space and frames: what is left does not depend on where lines end."""
    return "".join(character for character in text if not character.isspace() and character not in FRAMES)


def run(work: Coroutine[Any, Any, None]) -> None:
    """Runs an async test."""
    asyncio.run(work)
