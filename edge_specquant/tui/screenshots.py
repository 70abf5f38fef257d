"""Renders the pictures of the documentation: the real program and the real demo family, without a terminal.

Usage: python -m edge_specquant.tui.screenshots [SVG FILE]. Asks two fixed questions greedily, so the words repeat.
"""

from __future__ import annotations

import asyncio
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

from textual.pilot import Pilot

from ..gguf.format.atomic import write_text_whole
from ..params import SamplingParams, SpeculationParams
from ..runtime import EngineOptions
from ..store import Store
from .app import ChatApp, ChatSettings
from .engine import runtime_opener
from .launch import read_vitals
from .screens.chat import ChatScreen
from .widgets.prompt import Prompt

DEFAULT_FILE = Path("docs/images/chat.svg")
SIZE = (120, 40)
PATIENCE_S = 300.0
QUESTIONS = (
    "Why do lighthouses have different flash patterns? Answer in two sentences.",
    "Write a Python function that counts the words in a file.",
)


def main(arguments: list[str]) -> None:
    """Writes one picture."""
    path = Path(arguments[0]) if arguments else DEFAULT_FILE
    with tempfile.TemporaryDirectory() as folder:
        svg = asyncio.run(draw(QUESTIONS, Path(folder) / "chat.json"))
    path.parent.mkdir(parents=True, exist_ok=True)
    write_text_whole(path, svg)
    print(path)


async def draw(questions: tuple[str, ...], preferences_path: Path) -> str:
    """The chat after these questions, as SVG. Takes the conversation from nowhere and keeps it nowhere."""
    app = ChatApp(
        ChatSettings(
            opener=runtime_opener(EngineOptions),
            open_store=Store.in_memory,
            request_fields=lambda: {
                "sampling": SamplingParams(temperature=0.0),
                "speculation": SpeculationParams(),
                "max_tokens": 90,
            },
            family="demo",
            preferences_path=preferences_path,
            read_vitals=read_vitals,
        )
    )
    try:
        async with app.run_test(size=SIZE) as pilot:
            chat = app.chat
            await _until(pilot, lambda: chat.facts is not None)
            for question in questions:
                await _ask(pilot, chat, question)
            return app.export_screenshot(title="edge-specquant chat demo")
    finally:
        app.release()


async def _ask(pilot: Pilot[None], chat: ChatScreen, question: str) -> None:
    n_before = len(chat.dialogue.messages())
    chat.query_one(Prompt).put(question)
    await pilot.press("enter")
    await _until(pilot, lambda: not chat.running and len(chat.dialogue.messages()) == n_before + 2)
    await pilot.pause(1.0)  # the figures are drawn twice a second


async def _until(pilot: Pilot[None], condition: Callable[[], bool]) -> None:
    waited_s = 0.0
    while not condition():
        if waited_s > PATIENCE_S:
            raise TimeoutError(f"nothing happened for {PATIENCE_S:.0f} s")
        await pilot.pause(0.1)
        waited_s += 0.1


if __name__ == "__main__":
    main(sys.argv[1:])
