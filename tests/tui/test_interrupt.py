"""Ctrl-C and Esc, wherever they are pressed: in mid-answer, with nothing to stop, in a window, during a conversion."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
from textual.widgets import Input, OptionList
from tui_rig import Chat, Rig, endless, run, saying

from edge_specquant.runtime import Runtime
from edge_specquant.tui.engine import Progress
from edge_specquant.tui.screens.ask_line import AskLine
from edge_specquant.tui.screens.branches import Branches
from edge_specquant.tui.screens.keys import Keys
from edge_specquant.tui.screens.preset_window import PresetWindow
from edge_specquant.tui.screens.welcome import Welcome
from edge_specquant.tui.widgets.message_view import MessageView
from edge_specquant.tui.widgets.prompt import Prompt


def endless_rig() -> Rig:
    return Rig({"f16": endless}, pause_s=0.02, max_tokens=None, draft="none")


async def in_mid_answer(chat: Chat) -> None:
    await chat.say("go", wait=False)
    await chat.until(lambda: len(chat.screen.turns.reply.text) > 5)  # type: ignore[union-attr]


def test_in_mid_answer_it_stops_the_answer_and_asks_nothing() -> None:
    async def body() -> None:
        async with endless_rig().chat() as chat:
            await in_mid_answer(chat)
            await chat.press("ctrl+c")
            await chat.answered()
            message = chat.screen.dialogue.messages()[-1]
            assert message.status == "interrupted" and len(message.text) > 5
            assert not chat.shows("again to quit") and chat.app.is_running

    run(body())


def test_in_mid_prefill_it_stops_too() -> None:
    async def body() -> None:
        rig = Rig({"f16": endless}, pause_s=0.3, max_tokens=None, draft="none")
        async with rig.chat() as chat:
            await chat.say("word " * 600, wait=False)
            await chat.press("ctrl+c")
            await chat.answered()
            message = chat.screen.dialogue.messages()[-1]
            assert message.status == "interrupted" and message.text == ""

    run(body())


def test_with_nothing_to_stop_a_second_press_quits() -> None:
    async def body() -> None:
        async with Rig({"f16": saying("ok")}, notifications=True).chat() as chat:
            chat.screen.query_one(Prompt).put("half a sentence")
            await chat.press("ctrl+c")
            await chat.until(lambda: chat.shows("press Ctrl+C again to quit"))
            assert chat.screen.query_one(Prompt).text == "half a sentence"
            await chat.pilot.press("ctrl+c")
            await chat.pilot.pause()
            assert chat.app._exit

    run(body())


def test_a_press_long_ago_does_not_count() -> None:
    async def body() -> None:
        async with Rig({"f16": saying("ok")}).chat() as chat:
            await chat.press("ctrl+c")
            chat.app._forget_interrupt()  # what the timer does after three seconds
            await chat.press("ctrl+c")
            assert not chat.app._exit

    run(body())


@pytest.mark.parametrize(
    ("keys", "window"), [("f1", Keys), ("f2", PresetWindow), ("ctrl+f", AskLine), ("ctrl+t", Branches)]
)
def test_in_a_window_it_leaves_the_window(keys: str, window: type) -> None:
    async def body() -> None:
        async with Rig({"f16": saying("ok")}).chat() as chat:
            await chat.say("hi")
            await chat.press(keys)
            await chat.until(lambda: isinstance(chat.app.screen, window))
            await chat.press("ctrl+c")
            await chat.until(lambda: chat.app.screen is chat.screen)
            assert not chat.app._exit and not chat.shows("again to quit")
            assert chat.messages == ["hi", "ok"]

    run(body())


def test_in_a_window_over_an_answer_it_stops_the_answer_first() -> None:
    async def body() -> None:
        async with endless_rig().chat() as chat:
            await in_mid_answer(chat)
            await chat.press("f1")
            await chat.until(lambda: isinstance(chat.app.screen, Keys))
            await chat.press("ctrl+c")
            await chat.answered()
            assert isinstance(chat.app.screen, Keys)
            await chat.press("ctrl+c")
            await chat.until(lambda: chat.app.screen is chat.screen)

    run(body())


@pytest.mark.parametrize("where", ["prompt", "line"])
def test_with_something_selected_it_copies(where: str) -> None:
    async def body() -> None:
        async with Rig({"f16": saying("ok")}).chat() as chat:
            if where == "prompt":
                chat.screen.query_one(Prompt).put("copy me")
                chat.screen.query_one(Prompt).select_all()
            else:
                await chat.press("ctrl+f")
                await chat.until(lambda: isinstance(chat.app.screen, AskLine))
                line = chat.app.screen.query_one("#line", Input)
                line.value = "copy me"
                line.select_all()
            await chat.press("ctrl+c")
            assert chat.app.clipboard == "copy me" and not chat.app._interrupted

    run(body())


@pytest.mark.parametrize("key", ["escape", "ctrl+c"])
def test_a_conversion_can_be_stopped_and_begun_again(key: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """It ends at its next step, says what is kept, and the list is there again."""
    monkeypatch.setenv("EDGE_SPECQUANT_HOME", str(tmp_path))
    attempts: list[str] = []
    rig = Rig({"f16": saying("hello")}, family=None)

    def opener(source: str, convert: bool, progress: Progress) -> Runtime:
        attempts.append(source)
        assert convert
        for done in range(10_000 if len(attempts) == 1 else 3):
            progress("writing q8", done, 10_000)
            time.sleep(0.002)
        return rig.runtime()

    rig.opener = opener

    async def choose(chat: Chat) -> None:
        await chat.until(lambda: isinstance(chat.app.screen, Welcome) and chat.shows("A file or folder of yours"))
        entries = chat.app.screen.query_one(OptionList)
        entries.highlighted = next(i for i, one in enumerate(chat.app.screen.choices) if not one.source)  # type: ignore[attr-defined]
        await chat.press("enter")
        await chat.until(lambda: chat.shows("Which file or folder?"))
        chat.app.screen.query_one("#line", Input).value = "mine.gguf"
        await chat.press("enter")

    async def body() -> None:
        async with rig.chat(wait=False) as chat:
            await choose(chat)
            await chat.until(lambda: chat.shows("writing q8", "Esc stops"))
            await chat.press(key)
            await chat.until(lambda: chat.shows("stopped; what was finished is kept"))
            assert chat.app.screen.query_one(OptionList).has_focus and not chat.app._exit
            await choose(chat)
            await chat.until(lambda: chat.screen.facts is not None and chat.app.screen is chat.screen)
            assert attempts == ["mine.gguf", "mine.gguf"]
            await chat.say("hi")
            assert chat.messages[-1] == "hello" and len(list(chat.screen.query(MessageView))) == 2

    run(body())
