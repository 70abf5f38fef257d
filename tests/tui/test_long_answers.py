"""Answers that arrive piece by piece over many chapters end up as the same words, drawn as stored ones are."""

from __future__ import annotations

import pytest
from tui_rig import Chat, Rig, run, saying

from edge_specquant.tui.widgets.markdown_text import AnswerMarkdown, Chapter
from edge_specquant.tui.widgets.message_view import MessageView
from edge_specquant.tui.widgets.page import Page

CODE = "".join(f"    value_{i} = {{'apple': {i}}}\n" for i in range(70))
ANSWERS = {
    "prose": "".join(f"## Part {i}\n\nThe **keeper** counts `wave` {i}.\n\n- one\n- two\n\n" for i in range(12)),
    "code": f"See:\n\n```python\ndef f():\n{CODE}\n```\n\nThat was it.\n",
    "numbers": "".join(f"{i}. the **keeper** counts `wave` {i}\n" for i in range(1, 60)) + "\nDone.\n",
    "bullets": "".join(f"- wave {i}\n  - and foam\n" for i in range(40)),
    "table": "| n | square |\n|---|---|\n" + "".join(f"| {i} | {i * i} |\n" for i in range(40)),
}


async def stream(chat: Chat, text: str, size: int) -> MessageView:
    """Writes a text into a new message, `size` characters at a time, each drawn before the next."""
    dialogue = chat.screen.dialogue
    writer = dialogue.begin_answer()
    view = await chat.screen.draw_message(dialogue.store.message(writer.message_id))
    for at in range(0, len(text), size):
        view._next_at = 0.0
        await view.write([("target", text[at : at + size])])
        await chat.pilot.pause()
    writer.append(text)
    writer.finish({}, status="complete")
    await view.finish(dialogue.store.message(writer.message_id))
    await chat.until(lambda: not list(view.query(Chapter)))
    return view


def shown(view: MessageView) -> list[str]:
    """The lines of an answer, as drawn; blank ones apart."""
    lines = [line.text.strip() for page in view.query(Page) for line in page._lines]
    return [line for line in lines if line]


@pytest.mark.parametrize("name", ANSWERS)
def test_a_streamed_answer_looks_like_a_stored_one(name: str) -> None:
    text = ANSWERS[name]

    async def body() -> None:
        async with Rig({"f16": saying("ok")}, size=(100, 300)).chat() as chat:
            await chat.say("hi")
            view = await stream(chat, text, 37)
            assert view.query_one(AnswerMarkdown).source == text
            streamed = shown(view)
            assert len(list(view.walk_children())) < 12  # however long it is
            await chat.screen.draw_conversation()
            again = chat.screen.view_of(view.message.id)
            assert again is not None
            await chat.until(lambda: not list(again.query(Chapter)) and all(p._lines for p in again.query(Page)))
            assert streamed == shown(again)

    run(body())


def test_long_code_is_copied_whole_wherever_it_is_clicked() -> None:
    async def body() -> None:
        async with Rig({"f16": saying("ok")}, size=(100, 120)).chat() as chat:
            await chat.say("hi")
            view = await stream(chat, ANSWERS["code"], 37)
            page = view.query_one(Page)
            lines = [line.text.strip() for line in page._lines]
            first, last = lines.index("value_0 = {'apple': 0}"), lines.index("value_69 = {'apple': 69}")
            assert all(lines[first:last])  # no seam shows
            rows = [y for y, line in enumerate(page._lines) if "value_3 =" in line.text or "value_65 =" in line.text]
            for row in rows:
                chat.app.copy_to_clipboard("")
                await chat.pilot.click(page, offset=(8, row))
                await chat.until(lambda: "value_0" in chat.app.clipboard and "value_69" in chat.app.clipboard)
            assert len(rows) == 2

    run(body())


@pytest.mark.parametrize("change", ["width", "theme"])
def test_what_was_put_away_is_drawn_anew_when_it_must_be(change: str) -> None:
    async def body() -> None:
        async with Rig({"f16": saying("ok")}, size=(100, 30)).chat() as chat:
            await chat.say("hi")
            view = await stream(chat, ANSWERS["prose"] + "word " * 60, 50)
            if change == "width":
                await chat.pilot.resize_terminal(60, 30)
            else:
                chat.app.theme = "textual-light"
            await chat.until(lambda: not any(p._is_stale or p._asked for p in list(view.query(Page))[-1:]))
            await chat.until(lambda: not list(view.query(Chapter)))
            last = list(view.query(Page))[-1]
            assert last._width == last.outer_size.width and chat.shows("word word")
            assert view.query_one(AnswerMarkdown).source.startswith("## Part 0")

    run(body())


def test_scrolling_up_a_long_conversation_finds_everything_drawn() -> None:
    async def body() -> None:
        async with Rig({"f16": saying("ok")}, size=(100, 30)).chat() as chat:
            for i in range(6):
                await chat.say(f"question {i}")
            dialogue = chat.screen.dialogue
            for message in dialogue.messages():
                if message.role == "assistant":
                    writer = dialogue.begin_answer(message.id)
                    writer.append(ANSWERS["prose"])
                    writer.finish({}, status="complete")
            conversation = dialogue.conversation
            assert conversation is not None
            chat.screen.open_conversation(conversation.id)
            await chat.pilot.pause()
            pane = chat.screen.query_one("#messages")
            for _ in range(60):
                pane.scroll_page_up(animate=False)
                await chat.until(lambda: not list(chat.screen.query(Chapter)))
            assert pane.scroll_y == 0 and not chat.shows("## Part")

    run(body())
