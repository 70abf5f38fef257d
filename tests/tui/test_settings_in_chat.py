"""Settings of the file and the environment, all the way to the screen: family, system prompt, theme, colours, panel."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner
from tui_rig import Chat, Rig, run, saying

from edge_specquant.cli.main import root
from edge_specquant.runtime import Runtime
from edge_specquant.store import Store
from edge_specquant.tui import launch
from edge_specquant.tui.app import ChatApp, ChatSettings
from edge_specquant.tui.widgets.origin_text import OriginText
from edge_specquant.tui.widgets.stats_panel import StatsPanel

FILE = """
[chat]
family = "mine"
system = "Answer like a [bold] pirate."
temperature = 0.0
[tui]
theme = "nord"
origins = true
panel = false
"""

Settle = Callable[..., ChatSettings]


@pytest.fixture
def settle(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Settle:
    """What `edge-specquant chat` with these arguments and this settings file hands to the screen."""
    monkeypatch.setenv("EDGE_SPECQUANT_HOME", str(tmp_path))
    monkeypatch.setenv("TEXTUAL_DRIVER", "none")  # a test has no terminal, and would get the plain chat

    def settled(*arguments: str, text: str = FILE, **environment: str) -> ChatSettings:
        found: list[ChatSettings] = []
        monkeypatch.setattr(launch, "run_chat", found.append)
        for name, value in environment.items():
            monkeypatch.setenv(name, value)
        (tmp_path / "settings.toml").write_text(text, encoding="utf-8")
        done = CliRunner().invoke(root, list(arguments), catch_exceptions=False)
        assert done.exit_code == 0, done.output
        return found[0]

    return settled


async def opened(settings: ChatSettings, look: Callable[[Chat, list[str]], object]) -> None:
    """Runs the app with these settings on a scripted model; `look` gets the chat and the families asked for."""
    rig, asked = Rig({"f16": saying("ahoy")}, name="mine"), []

    def opener(family: str, *_: object) -> Runtime:
        asked.append(family)
        return rig.runtime()

    app = ChatApp(dataclasses.replace(settings, opener=opener, read_vitals=None, open_store=Store.in_memory))
    try:
        async with app.run_test(size=(120, 40)) as pilot:
            chat = Chat(app, pilot)
            await chat.until(lambda: chat.screen.facts is not None)
            await chat.say("hi")
            look(chat, asked)
    finally:
        app.release()


@pytest.mark.parametrize("arguments", [(), ("chat",)])
def test_the_file_decides_how_the_chat_starts(settle: Settle, arguments: tuple[str, ...]) -> None:
    def look(chat: Chat, asked: list[str]) -> None:
        assert asked == ["mine"] and "mine" in chat.text.splitlines()[0]
        assert chat.app.theme == "nord"
        assert chat.screen.origins and chat.screen.query_one(OriginText).plain == "ahoy"
        assert not chat.screen.query_one(StatsPanel).display
        request = chat.screen.dialogue.request(-1)
        assert request.system == "Answer like a [bold] pirate." and request.sampling.temperature == 0.0
        conversation = chat.screen.dialogue.conversation
        assert conversation is not None and conversation.system == "Answer like a [bold] pirate."

    run(opened(settle(*arguments), look))


def test_the_environment_wins_over_the_file_and_flags_over_both(settle: Settle) -> None:
    def look(chat: Chat, asked: list[str]) -> None:
        assert asked == ["other"] and chat.app.theme == "textual-light"
        assert chat.screen.dialogue.request(-1).system == "Be brief."
        assert chat.screen.query_one(StatsPanel).display

    settings = settle(
        "chat",
        "other",
        "--system",
        "Be brief.",
        EDGE_SPECQUANT_TUI_THEME="textual-light",
        EDGE_SPECQUANT_TUI_PANEL="true",
    )
    run(opened(settings, look))


def test_what_no_setting_says_is_as_it_was_left(settle: Settle, tmp_path: Path) -> None:
    left = {"theme": "dracula", "show_stats": False, "show_origins": True, "family": "mine"}
    (tmp_path / "chat.json").write_text(json.dumps(left), encoding="utf-8")

    def look(chat: Chat, asked: list[str]) -> None:
        del asked
        assert chat.app.theme == "dracula" and not chat.screen.origins
        assert not chat.screen.query_one(StatsPanel).display

    run(opened(settle("chat", "mine", text="[tui]\norigins = false\n"), look))


def test_a_theme_that_is_not_there_is_said(settle: Settle) -> None:
    def look(chat: Chat, asked: list[str]) -> None:
        del asked
        assert chat.shows("there is no theme 'norf'", "nord")

    async def body() -> None:
        settings = settle("chat", "mine", text='[tui]\ntheme = "norf"\n')
        app = ChatApp(dataclasses.replace(settings, opener=Rig({"f16": saying("x")}).runtime, read_vitals=None))
        try:
            async with app.run_test(size=(120, 40)) as pilot:
                chat = Chat(app, pilot)
                await chat.until(lambda: chat.screen.facts is not None)
                look(chat, [])
        finally:
            app.release()

    run(body())


def test_a_switched_off_store_keeps_nothing_of_the_chat(settle: Settle, tmp_path: Path) -> None:
    settings = settle("chat", "mine", EDGE_SPECQUANT_STORE_ENABLED="false")
    assert settings.open_store().is_in_memory

    def look(chat: Chat, asked: list[str]) -> None:
        del asked
        chat.app.theme = "dracula"

    run(opened(settings, look))
    assert not (tmp_path / "chat.json").exists()


def test_a_policy_routes_every_prompt_and_the_panel_says_why(settle: Settle) -> None:
    """From the settings file and from the flag, which wins; what is named stays as it is named."""
    text = """
    [chat]
    family = "mine"
    policy = "fast"
    """
    assert settle(text=text).request_fields()["policy"] == "fast"
    settings = settle("chat", "--policy", "quality", text=text)
    assert settings.request_fields()["policy"] == "quality"

    def look(chat: Chat, _asked: list[str]) -> None:
        end = chat.screen.turns.last_end
        assert end is not None and end.target == "f16"
        assert end.reasons[0] == "policy quality" and len(end.reasons) >= 3
        assert chat.shows("policy quality")

    run(opened(settings, look))
