"""Puts the chat together as the command line wants it: the real runtime, store and gauges."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from ..config import load_settings
from ..store import Store
from .app import ChatApp, ChatSettings
from .engine import runtime_opener

if TYPE_CHECKING:
    from ..placement.power.vitals import Vitals
    from ..runtime import EngineOptions


def run_chat(settings: ChatSettings) -> None:
    """The chat, until somebody leaves it."""
    app = ChatApp(settings)
    try:
        app.run()
    finally:
        app.release()


def settings_for(
    family: str | None, system: str | None, engine_options: Callable[[], EngineOptions], fields: dict[str, Any]
) -> ChatSettings:
    """Settings of a chat with real models. engine_options is called in the engine's thread (it imports the runtime)."""
    return ChatSettings(
        opener=runtime_opener(engine_options),
        open_store=_open_store,
        request_fields=lambda: dict(fields),
        family=family,
        system=system,
        read_vitals=read_vitals,
        looks=looks(),
        remembers=load_settings().settings.store.enabled,  # switched off, nothing of the chat is kept
    )


def looks() -> dict[str, Any]:
    """What settings say of the looks; what they do not say is as it was left. Raises SettingsError."""
    loaded = load_settings()
    tui = loaded.settings.tui
    values = {"theme": tui.theme, "show_origins": tui.origins, "show_stats": tui.panel}
    names = {"theme": "tui.theme", "show_origins": "tui.origins", "show_stats": "tui.panel"}
    return {look: value for look, value in values.items() if loaded.origins[names[look]] != "default"}


def _open_store() -> Store:
    from ..store import open_store

    return open_store(load_settings().settings.store)


def read_vitals() -> Callable[[], Vitals]:
    """A reader of load, temperature and power. Slow to make: for a thread."""
    from ..placement.power.vitals import VitalsReader

    return VitalsReader().read
