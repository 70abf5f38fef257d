"""The pane of conversations and the first screen: found, renamed, pinned, deleted and brought back, exported."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from textual.widgets import Input, OptionList
from tui_rig import Chat, Rig, run, saying

from edge_specquant.errors import FamilyError
from edge_specquant.runtime import Runtime
from edge_specquant.store import Store
from edge_specquant.store.formats.portable import from_json_text
from edge_specquant.tui.choosing.choices import PATH
from edge_specquant.tui.engine import Progress
from edge_specquant.tui.screens.welcome import Welcome
from edge_specquant.tui.widgets.conversation_list import ConversationList
from edge_specquant.tui.widgets.prompt import Prompt


def filled() -> Store:
    store = Store.in_memory()
    for title, text in (("[bold] lamps", "about lamps"), ("boats", "the [/ harbour"), ("trees", "oak and 日本語")):
        conversation = store.create(title)
        store.add(conversation.id, "user", text)
        store.add(conversation.id, "assistant", f"an answer on {title}")
    return store


def titles(store: Store) -> list[str]:
    return [conversation.title for conversation in store.conversations()]


async def open_list(chat: Chat) -> None:
    if not chat.screen.query_one(ConversationList).has_class("shown"):
        await chat.press("ctrl+l")
    chat.screen.query_one(OptionList).focus()
    await chat.until(lambda: chat.screen.query_one(OptionList).has_focus)


def test_search_finds_text_and_opens_it() -> None:
    async def body() -> None:
        async with Rig({"f16": saying("ok")}, store=filled()).chat() as chat:
            await open_list(chat)
            assert chat.shows("[bold] lamps", "trees")
            await chat.press("slash")
            chat.screen.query_one("#search", Input).value = "harbour"
            await chat.until(lambda: not chat.shows("trees"))
            assert chat.shows("the [/ harbour")
            await chat.press("enter")
            await chat.until(lambda: chat.messages == ["the [/ harbour", "an answer on boats"])
            await chat.until(lambda: chat.shows("an answer on boats"))

    run(body())


def test_rename_pin_delete_and_undo() -> None:
    store = filled()

    async def body() -> None:
        async with Rig({"f16": saying("ok")}, store=store).chat() as chat:
            await open_list(chat)
            await chat.press("down", "p")
            assert titles(store)[0] == "boats"
            await chat.press("r")
            await chat.until(lambda: chat.shows("Rename"))
            chat.app.screen.query_one("#line", Input).value = "[ships]"
            await chat.press("enter")
            await chat.until(lambda: "[ships]" in titles(store))
            await chat.press("d")
            assert "[ships]" not in titles(store)
            await chat.press("u")
            assert titles(store)[0] == "[ships]"

    run(body())


def test_deleting_the_conversation_on_show_leaves_it_and_undo_returns() -> None:
    store = filled()

    async def body() -> None:
        async with Rig({"f16": saying("ok")}, store=store).chat() as chat:
            await open_list(chat)
            await chat.press("enter")
            await chat.until(lambda: len(chat.messages) == 2)
            await open_list(chat)
            await chat.press("d")
            assert chat.messages == []
            await chat.press("u")
            await chat.until(lambda: len(chat.messages) == 2)

    run(body())


def test_export_writes_what_the_name_says_and_overwrites_nothing(tmp_path: Path) -> None:
    async def body() -> None:
        async with Rig({"f16": saying("ok")}, store=filled()).chat() as chat:
            target = tmp_path / "ein Name.json"

            async def export() -> None:
                await open_list(chat)
                await chat.press("e")
                await chat.until(lambda: chat.app.screen.query("#line"))
                chat.app.screen.query_one("#line", Input).value = str(target)
                await chat.press("enter")
                await chat.until(lambda: chat.app.screen is chat.screen)

            await export()
            await chat.until(target.exists)
            await export()
            await chat.until(lambda: chat.shows("already; choose another name"))
            copies = from_json_text(target.read_text(encoding="utf-8"))
            assert [copy.title for copy in copies] == ["trees"]

    run(body())


async def choose_path(chat: Chat) -> None:
    welcome = chat.app.screen
    assert isinstance(welcome, Welcome)
    entries = welcome.query_one("#choices", OptionList)
    entries.highlighted = welcome.choices.index(PATH)
    entries.focus()
    await chat.press("enter")


def test_first_run_offers_choices_and_shows_progress_and_failure(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("EDGE_SPECQUANT_HOME", str(tmp_path))  # families of other tests are not this user's
    attempts: list[tuple[str, bool]] = []
    rig = Rig({"f16": saying("hello")}, family=None)

    def opener(source: str, convert: bool, progress: Progress) -> Runtime:
        attempts.append((source, convert))
        progress("writing [q8]", 40, 100)
        if source == "bad":
            raise FamilyError("there is no [family] 'bad'")
        return rig.runtime()

    rig.opener = opener

    async def body() -> None:
        async with rig.chat(wait=False) as chat:
            await chat.until(lambda: isinstance(chat.app.screen, Welcome))
            await chat.until(lambda: chat.shows("A file or folder of yours"))
            await choose_path(chat)
            await chat.until(lambda: chat.shows("Which file or folder?"))
            chat.app.screen.query_one("#line", Input).value = "bad"
            await chat.press("enter")
            await chat.until(lambda: chat.shows("there is no [family] 'bad'"))
            await choose_path(chat)
            await chat.until(lambda: chat.shows("Which file or folder?"))
            chat.app.screen.query_one("#line", Input).value = "good.gguf"
            await chat.press("enter")
            await chat.until(lambda: chat.screen.facts is not None and chat.app.screen is chat.screen)
            assert attempts == [("bad", True), ("good.gguf", True)]
            await chat.say("hi")
            assert chat.messages[-1] == "hello"

    run(body())


def test_a_family_that_is_not_there_leads_to_the_choices() -> None:
    def opener(source: str, *_: object) -> Runtime:
        raise FamilyError(f"there is no family '{source}'")

    async def body() -> None:
        rig = Rig({"f16": saying("x")}, family="[none]", opener=opener)
        async with rig.chat(wait=False) as chat:
            await chat.until(lambda: isinstance(chat.app.screen, Welcome))
            await chat.until(lambda: chat.shows("there is no family '[none]'"))
            await chat.press("escape")
            await chat.until(lambda: chat.app.screen is chat.screen)
            chat.screen.query_one(Prompt).put("anyone?")
            await chat.press("enter")
            await chat.until(lambda: chat.shows("there is no model yet", "F3 chooses a model"))
            assert chat.messages == [] and chat.screen.query_one(Prompt).text == "anyone?"

    run(body())


def test_looks_are_remembered(tmp_path: Path) -> None:
    async def first() -> None:
        async with Rig({"f16": saying("ok")}, folder=tmp_path).chat() as chat:
            chat.app.theme = "textual-light"
            await chat.press("ctrl+s", "ctrl+o", "ctrl+q")

    run(first())
    kept = json.loads((tmp_path / "chat.json").read_text(encoding="utf-8"))
    assert kept == {"theme": "textual-light", "show_stats": False, "show_origins": True, "family": "fake"}

    async def second() -> None:
        async with Rig({"f16": saying("ok")}, folder=tmp_path).chat() as chat:
            assert chat.app.theme == "textual-light" and chat.screen.origins
            assert not chat.screen.query_one("StatsPanel").display

    run(second())
