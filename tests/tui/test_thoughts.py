"""The chat with a model that thinks: a folded line that is opened by key or mouse, kept apart, not copied."""

from __future__ import annotations

from pathlib import Path

import pytest
from thinking_rig import saying, thinking_vocab
from tui_rig import Rig, run

from edge_specquant.store import Store
from edge_specquant.tui.choosing.own_presets import load
from edge_specquant.tui.screens.list_actions import export
from edge_specquant.tui.widgets.message_view import MessageView
from edge_specquant.tui.widgets.thought_view import ThoughtView

REPLY = "<think>\nhm, [bold]so\n</think>\n\nYes."


def test_a_thought_is_a_folded_line_that_key_and_mouse_open(tmp_path: Path) -> None:
    store = Store.in_memory()

    async def look() -> None:
        rig = Rig({"f16": saying(REPLY, "Five.")}, vocab=thinking_vocab(), store=store, draft="none")
        async with rig.chat() as chat:
            await chat.say("hi")
            view = chat.screen.query(MessageView).last()
            thought = view.query_one(ThoughtView)
            assert "▸ thought for" in chat.text and "tokens" in chat.text
            assert "so" not in chat.text and "Yes." in chat.text and "think>" not in chat.text
            view.focus()
            await chat.press("t")
            assert "hm, [bold]so" in chat.text and "▾ thought" in chat.text
            await chat.pilot.click(thought.query(".line").first())
            await chat.pilot.pause()
            assert "hm" not in chat.text
            await chat.press("escape")
            await chat.say("and?")
            assert "Five." in chat.text
            conversation = store.conversations()[0]
            message = store.messages(conversation.id)[1]
            assert (message.text, message.thought) == ("Yes.", "hm, [bold]so")
            assert store.search("bold") == [] and len(store.search("bold", thoughts=True)) == 1
            export(store, conversation.id, tmp_path / "out.json")
            assert "bold" not in (tmp_path / "out.json").read_text()
            n_thought = message.record["n_thought"]
            tokens = message.record["tokens"]
            assert isinstance(n_thought, int) and isinstance(tokens, list)
            assert bytes(tokens[n_thought:]) == b"Yes."

    run(look())


def test_a_preset_sets_how_it_thinks(tmp_path: Path) -> None:
    path = tmp_path / "presets.toml"
    path.write_text('[quick]\nthink = "off"\n[deep]\nthink = "on"\nthink_budget = 50\n[bad]\nthink = "maybe"\n')
    found = load(path)
    assert [preset.applied_to({}) for preset in found.presets] == [
        {"think": "off"},
        {"think": "on", "think_budget": 50},
    ]
    assert "maybe" in found.problem


@pytest.mark.parametrize("thoughts", [True, False])
def test_a_copy_has_the_thought_on_wish(thoughts: bool) -> None:
    from edge_specquant.store.formats.markdown import from_markdown, to_markdown
    from edge_specquant.store.formats.portable import from_json_text, to_json_text
    from edge_specquant.store.rows.copies import without_thoughts

    with Store.in_memory() as store:
        conversation = store.create("a")
        store.add(conversation.id, "user", "hi")
        with store.begin(conversation.id) as writer:
            writer.append("", "hm")
            writer.flush()
            writer.append("Yes.")
            writer.finish({"tokens": [1, 2, 3], "n_thought": 2})
        copy = store.copy(conversation.id)
        copy = copy if thoughts else without_thoughts(copy)
        assert copy.messages[1].thought == ("hm" if thoughts else "")
        assert copy.messages[1].record["tokens"] == ([1, 2, 3] if thoughts else [3])
        assert from_json_text(to_json_text([copy])) == [copy]
        assert from_markdown(to_markdown(copy)).messages[1].thought == copy.messages[1].thought
        added = store.add_copies([copy])[0]
        assert store.copy(added.id).messages == copy.messages
