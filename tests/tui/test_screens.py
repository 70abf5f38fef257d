"""Every screen and state, drawn and compared with a stored picture (tests/tui/screens/*.svg).

After a wanted change of the looks, run this file with EDGE_SPECQUANT_REFRESH_SCREENS=1: it writes the pictures anew;
look at them before committing. The words must be the same with every version of Textual; the whole picture only with
the version that drew it.
"""

from __future__ import annotations

import html
import os
import re
import threading
from collections.abc import Awaitable, Callable, Sequence
from importlib.metadata import version
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from patience import PATIENCE_S
from textual.widgets import Input
from tui_rig import Chat, Rig, run, saying

from edge_specquant.engine.stats import SpeculationStats
from edge_specquant.store import Store
from edge_specquant.tui.answers.reply import footnote
from edge_specquant.tui.choosing.choices import PATH, Choice
from edge_specquant.tui.news import Loading, ReplyEnd
from edge_specquant.tui.screens.welcome import Welcome
from edge_specquant.tui.widgets.conversation_list import ConversationList
from edge_specquant.tui.widgets.message_view import MessageView
from edge_specquant.tui.widgets.prompt import Prompt

FOLDER = Path(__file__).parent / "screens"
REFRESH = bool(os.environ.get("EDGE_SPECQUANT_REFRESH_SCREENS"))
ANSWER = """Two **siblings**, one answer:

- the draft *guesses*
- the target verifies

| sibling | bits |
|---|---|
| f16 | 16 |
| q4 | 4.5 |

```python
def speedup(accepted, cost):
    return (1 + accepted) / cost  # 日本語
```
"""
STATS = SpeculationStats(
    31, 0, 120, 0.21, 0.2, 3.0, 40, 100, 80, (0.9, 0.8), {"target": 40, "q4": 60, "lookup": 20}, 0.5, 2.2, 1.31,
    "q4: 3 ahead promised 1.31x",
)  # fmt: skip
SPEAKS = Rig({"f16": saying(ANSWER), "q4": saying("x")}).models

State = Callable[[Chat], Awaitable[None]]


async def first_run(chat: Chat) -> None:
    choices = [
        Choice("The demo", "SmolLM2 135M Instruct, Apache-2.0, here already (93.8 MiB); makes 470 MiB", "demo", True),
        PATH,
        Choice("Someone/Model-1B", "download: q8 + q4, 1.70 GiB, MIT, at most 12.0 tok/s without drafts; a note", "x"),
    ]
    chat.app.show_welcome(choices)
    await chat.until(lambda: chat.shows("Someone/Model-1B"))


async def converting(chat: Chat) -> None:
    await first_run(chat)
    welcome = chat.app.screen
    assert isinstance(welcome, Welcome)
    welcome.progress(Loading("writing q8", 40, 100))
    await chat.until(lambda: chat.shows("40%"))


async def empty(chat: Chat) -> None:
    await chat.until(lambda: chat.shows("Ask anything"))


async def answered(chat: Chat) -> None:
    await chat.say("How does it work?")
    steady(chat)


async def coloured(chat: Chat) -> None:
    await answered(chat)
    at = (0, 4, 30, 70, 120, len(ANSWER))
    kinds = ("target", "draft", "lookup", "target", "draft")
    view = list(chat.screen.query(MessageView))[-1]
    view._runs = [(kind, ANSWER[a:b]) for kind, (a, b) in zip(kinds, pairwise(at), strict=True)]
    await chat.press("ctrl+o")


async def without_panel(chat: Chat) -> None:
    await answered(chat)
    await chat.press("ctrl+s")


async def failed(chat: Chat) -> None:
    await answered(chat)
    chat.screen.complain("the engine process died (signal 9, out of memory?) [/bold]", "Ctrl+R answers again")


async def branches(chat: Chat) -> None:
    await chat.say("First question")
    await chat.press("ctrl+r")
    await chat.answered()
    await chat.say("Second question")
    steady(chat)
    await chat.press("ctrl+t")
    await chat.until(lambda: chat.shows("Branches"))


async def search(chat: Chat) -> None:
    await chat.press("ctrl+l")
    chat.screen.query_one("#search", Input).value = "harbour"
    await chat.until(lambda: chat.shows("boats") and not chat.shows("trees"))
    chat.screen.query_one(ConversationList).query_one("#entries").focus()


async def presets(chat: Chat) -> None:
    await chat.press("f2")
    await chat.until(lambda: chat.shows("System prompt"))


async def keys(chat: Chat) -> None:
    await chat.press("f1")
    await chat.until(lambda: chat.shows("another model"))


STATES: dict[str, tuple[State, tuple[int, int]]] = {
    "first-run": (first_run, (100, 34)),
    "converting": (converting, (100, 34)),
    "empty": (empty, (100, 30)),
    "chat": (answered, (120, 40)),
    "narrow": (answered, (60, 20)),
    "colours": (coloured, (120, 40)),
    "without-panel": (without_panel, (100, 30)),
    "error": (failed, (120, 40)),
    "branches": (branches, (100, 30)),
    "search": (search, (120, 30)),
    "presets": (presets, (100, 34)),
    "keys": (keys, (100, 48)),
}


@pytest.mark.parametrize("name", STATES)
def test_a_screen_looks_as_it_did(name: str) -> None:
    state, size = STATES[name]

    async def body() -> None:
        async with Rig(SPEAKS, draft="none", size=size, store=filled()).chat() as chat:
            chat.screen.query_one(Prompt).cursor_blink = False
            await state(chat)
            await compare(chat, name)

    run(body())


@pytest.mark.parametrize("name, size", [("streaming", (120, 40)), ("streaming-narrow", (60, 20))])
def test_an_answer_on_its_way_looks_as_it_did(name: str, size: tuple[int, int]) -> None:
    go_on, said = threading.Event(), ANSWER.encode()[:120]

    def halting(history: Sequence[int]) -> Any:
        if bytes(token for token in history if token < 256).endswith(said):
            go_on.wait(PATIENCE_S)
        return saying(ANSWER)(history)

    async def body() -> None:
        async with Rig({"f16": halting}, draft="none", size=size).chat() as chat:
            chat.screen.query_one(Prompt).cursor_blink = False
            try:
                await chat.say("How does it work?", wait=False)
                reply = chat.screen.turns.reply
                assert reply is not None
                await chat.until(lambda: reply.n_tokens == len(said))
                await chat.until(lambda: re.search(r"f16 +│ 16", chat.text) is not None)  # the last of what was said
                reply.first_at = None
                reply._stamps.clear()
                chat.screen.show_state("42.0 tok/s", busy=True)
                chat.screen.draw_figures()
                await compare(chat, name)
            finally:
                go_on.set()

    run(body())


def steady(chat: Chat) -> None:
    """Figures of a clock become figures of a book."""
    turns = chat.screen.turns
    if turns.reply is not None:
        turns.reply.drafted_by_round = [0, 3, 3, 7, 3, 1, 0, 3, 3, 5]
        turns.reply.accepted_by_round = [0, 3, 1, 5, 2, 1, 0, 3, 0, 4]
    turns.last_end = ReplyEnd(1, "stop", STATS, "f16", "lookup+q4")
    for view in chat.screen.query(MessageView):
        if view.answers:
            view.set_foot(footnote({"stats": STATS.as_dict()}))
    chat.screen.draw_figures()


async def compare(chat: Chat, name: str) -> None:
    await chat.pilot.pause(0.3)
    svg = normal(chat.app.export_screenshot(title=name))
    path = FOLDER / f"{name}.svg"
    if REFRESH:
        FOLDER.mkdir(exist_ok=True)
        path.write_text(svg, encoding="utf-8", newline="\n")
    stored = path.read_text(encoding="utf-8")
    assert words(svg) == words(stored), chat.text
    if f"Textual {version('textual')}" in stored:
        assert svg == stored, f"{name}: the same words, another look; compare with {path}"


def normal(svg: str) -> str:
    """Without the random id, and with the version that drew it."""
    svg = re.sub(r"terminal-\d+", "terminal", svg)
    lines = [line.rstrip() for line in svg.splitlines()]
    return f"<!-- Textual {version('textual')} -->\n" + "\n".join(lines) + "\n"


def words(svg: str) -> str:
    texts = re.findall(r"<text[^>]*>([^<]*)</text>", svg)
    return " ".join(html.unescape(" ".join(texts)).split())


def filled() -> Store:
    store = Store.in_memory()
    for title, text in (
        ("[bold] lamps", "about lamps"),
        ("boats", "the [/ harbour at night"),
        ("trees", "oak, 日本語"),
    ):
        conversation = store.create(title)
        store.add(conversation.id, "user", text)
        store.add(conversation.id, "assistant", f"an answer on {title}")
    return store
