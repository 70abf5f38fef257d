"""The chat on scripted models: what is said is kept and shown, verbatim, whatever is pressed."""

from __future__ import annotations

import time

import pytest
from tui_rig import Rig, endless, run, saying, unwrapped

from edge_specquant.errors import DecodeError
from edge_specquant.tui.widgets.banner import Banner
from edge_specquant.tui.widgets.message_view import MessageView
from edge_specquant.tui.widgets.origin_text import OriginText
from edge_specquant.tui.widgets.prompt import Prompt
from edge_specquant.tui.widgets.stats_panel import StatsPanel

NASTY = "[bold] [/ [00] [type=x, v={'a[0]'}] [red]x[/red] <b>html</b>"


def test_an_answer_streams_onto_the_screen_and_into_the_store() -> None:
    async def body() -> None:
        async with Rig({"f16": saying("Hello **there**.\n\n- one\n- two\n")}).chat() as chat:
            await chat.say("hi")
            assert chat.messages == ["hi", "Hello **there**.\n\n- one\n- two\n"]
            assert chat.shows("Hello there.", "• one", "hi")
            assert chat.screen.query_one(Prompt).has_focus and chat.screen.query_one(Prompt).text == ""

    run(body())


@pytest.mark.parametrize("colours", [False, True])
def test_markup_is_shown_as_it_is(colours: bool) -> None:
    async def body() -> None:
        async with Rig({"f16": saying(NASTY)}, name="[bold]name[/").chat() as chat:
            if colours:
                await chat.press("ctrl+o")
            await chat.say(NASTY)
            text = unwrapped(chat.text)
            assert text.count(unwrapped(" ".join(NASTY.split()[:6]))) >= 2, chat.text
            assert text.count("<b>html</b>") >= 2
            assert chat.shows("[bold]name[/")

    run(body())


@pytest.mark.parametrize("colours", [False, True])
def test_control_characters_reach_no_terminal(colours: bool) -> None:
    bad = b"a\x1b[31mred\x1b]0;title\x07 b\rc\x00d\x9b1m e\xc2\x9bf\n"

    async def body() -> None:
        async with Rig({"f16": saying(bad)}).chat() as chat:
            if colours:
                await chat.press("ctrl+o")
            await chat.say("x\x1b[2Jy")
            shown = chat.text.replace("\n", "")
            assert not any(ord(c) < 32 or 0x7F <= ord(c) < 0xA0 for c in shown)
            assert chat.shows("␛[31mred␛]0;title␇", "c␀d", "x␛[2Jy")

    run(body())


def test_escape_stops_an_answer_and_keeps_what_was_said() -> None:
    async def body() -> None:
        async with Rig({"f16": endless}, pause_s=0.02, max_tokens=None, draft="none").chat() as chat:
            await chat.say("go", wait=False)
            await chat.until(lambda: len(chat.screen.turns.reply.text) > 5)  # type: ignore[union-attr]
            await chat.press("escape")
            await chat.answered()
            message = chat.screen.dialogue.messages()[-1]
            assert message.status == "interrupted" and len(message.text) > 5
            await chat.say("again", wait=False)
            await chat.until(lambda: chat.screen.turns.reply.n_tokens > 0)  # type: ignore[union-attr]

    run(body())


def test_quitting_in_mid_answer_is_quick_and_keeps_it() -> None:
    rig = Rig({"f16": endless}, pause_s=0.02, max_tokens=None, draft="none")
    kept: list[str] = []

    async def body() -> None:
        async with rig.chat() as chat:
            await chat.say("go", wait=False)
            await chat.until(lambda: len(chat.screen.turns.reply.text) > 5)  # type: ignore[union-attr]
            begun = time.monotonic()
            await chat.press("ctrl+q")
            assert time.monotonic() - begun < 5  # a hang, not a slow machine
            kept.append(rig.store.messages(rig.store.conversations()[0].id)[-1].text)

    run(body())
    assert len(kept[0]) > 5


def test_regenerating_makes_versions_that_can_be_switched() -> None:
    async def body() -> None:
        async with Rig({"f16": saying("answer")}).chat() as chat:
            await chat.say("question")
            await chat.press("ctrl+r")
            await chat.answered()
            assert chat.shows("‹ 2/2 ›") and chat.messages == ["question", "answer"]
            await chat.press("shift+tab", "left")
            await chat.until(lambda: chat.shows("‹ 1/2 ›"))
            await chat.press("right")
            await chat.until(lambda: chat.shows("‹ 2/2 ›"))

    run(body())


def test_editing_an_earlier_message_keeps_the_old_branch() -> None:
    async def body() -> None:
        async with Rig({"f16": saying("yes")}).chat() as chat:
            await chat.say("first")
            await chat.say("second")
            await chat.press("shift+tab", "up", "up", "up", "e")
            assert chat.screen.query_one(Prompt).text == "first"
            chat.screen.query_one(Prompt).put("changed")
            await chat.press("enter")
            await chat.until(lambda: chat.messages == ["changed", "yes"])
            await chat.answered()
            await chat.press("ctrl+t")
            await chat.until(lambda: chat.shows("Branches"))
            assert chat.shows("first", "second", "changed", "●")
            await chat.press("home", "enter")
            await chat.until(lambda: chat.messages == ["first", "yes", "second", "yes"])

    run(body())


def test_an_answer_that_was_cut_goes_on_where_it_ended() -> None:
    async def body() -> None:
        rig = Rig({"f16": saying("Paris, of course, in France.")})
        async with rig.chat() as chat:
            plain = rig.request_fields
            chat.screen.dialogue._fields = lambda: plain() | {"max_tokens": 9}
            await chat.say("where?")
            assert chat.messages[-1] == "Paris, of"
            chat.screen.dialogue._fields = plain
            await chat.press("shift+tab", "n")
            await chat.answered()
            assert chat.messages == ["where?", "Paris, of course, in France."]
            message = chat.screen.dialogue.messages()[-1]
            assert bytes(message.record["tokens"]).decode() == message.text
            assert message.record["finish_reason"] == "stop"
            assert "Paris, of course, in France." in chat.text and "2/2" in chat.text.replace(" ", "")
            await chat.press("shift+tab", "n")  # this one is whole
            assert len(chat.screen.dialogue.store.siblings(message.id)) == 2

    run(body())


def test_a_redo_keeps_what_the_judge_agrees_with() -> None:
    models = {"f16": saying("Paris, of course, in France."), "q4": saying("Paris, of course, in Texas.")}

    async def body() -> None:
        rig = Rig(models, size=(160, 40))
        async with rig.chat() as chat:
            plain = rig.request_fields
            chat.screen.dialogue._fields = lambda: plain() | {"target": "q4"}
            await chat.say("where?")
            assert chat.messages[-1].endswith("Texas.")
            chat.screen.dialogue._fields = plain
            await chat.press("ctrl+g")
            await chat.answered()
            message = chat.screen.dialogue.messages()[-1]
            assert message.text == "Paris, of course, in France."
            n_agreeing = len("Paris, of course, in ")
            assert message.record["redo"] == {"target": "f16", "n_agreeing": n_agreeing, "n_tokens": 27}
            assert chat.shows(f"f16 agrees with the first {n_agreeing} of 27")
            assert chat.shows("Paris, of course, in ▸France.")
            assert "most precise sibling already" in str(chat.screen.redo_of(message))

    run(body())


def test_colours_tell_who_wrote_a_token_and_survive_reopening() -> None:
    async def body() -> None:
        async with Rig({"f16": saying("abcabcabcabcabcabcabcabc"), "q4": saying("x")}).chat() as chat:
            await chat.press("ctrl+o")
            await chat.say("abcabcabc")
            conversation = chat.screen.dialogue.conversation
            assert conversation is not None
            kinds = {kind for kind, _ in chat.screen.turns.reply.runs}  # type: ignore[union-attr]
            assert kinds == {"target", "lookup"}
            await chat.press("ctrl+n")
            chat.screen.open_conversation(conversation.id)
            await chat.until(lambda: chat.screen.query(OriginText))
            assert chat.screen.query_one(OriginText).plain == chat.messages[-1]

    run(body())


def test_a_failing_engine_is_a_banner_with_a_way_on() -> None:
    fails = [True]

    def failing(history: object) -> object:
        if fails[0]:
            raise DecodeError("the engine said [/ and 'bold'")
        return saying("back again")(history)  # type: ignore[arg-type]

    async def body() -> None:
        async with Rig({"f16": failing}).chat() as chat:  # type: ignore[dict-item]
            await chat.say("hi")
            assert chat.shows("the engine said [/ and 'bold'", "Ctrl+R answers again")
            fails[0] = False
            await chat.press("ctrl+r")
            await chat.answered()
            assert chat.messages[-1] == "back again"
            assert not chat.screen.query_one(Banner).has_class("shown")

    run(body())


def test_the_figures_hold_only_what_is_known() -> None:
    async def body() -> None:
        async with Rig({"f16": saying("abcabcabcabcabcabc")}).chat() as chat:
            assert not chat.shows("accepted") and not chat.shows("tok/s")
            await chat.say("abcabc")
            await chat.until(lambda: chat.shows("tokens a round"))
            assert chat.shows("of 4096", "f16")
            await chat.press("ctrl+s")
            assert not chat.screen.query_one(StatsPanel).display

    run(body())


def test_a_narrow_terminal_loses_nothing() -> None:
    async def body() -> None:
        async with Rig({"f16": saying("word " * 60)}, size=(60, 20)).chat() as chat:
            await chat.say("hello")
            assert chat.shows("word word", "Send")
            assert max(len(line) for line in chat.text.splitlines()) <= 60
            for size in ((200, 50), (40, 12), (120, 40), (60, 20)):
                await chat.pilot.resize_terminal(*size)
                await chat.pilot.pause()
                assert chat.shows("word")
            assert chat.screen.query_one(MessageView).message.text == "hello"
            await chat.press("ctrl+s")
            await chat.until(lambda: chat.shows("tokens"))
            await chat.press("ctrl+s")
            await chat.press("ctrl+l")
            await chat.until(lambda: chat.shows("Search"))

    run(body())


def test_a_message_typed_before_the_model_is_there_is_sent() -> None:
    async def body() -> None:
        async with Rig({"f16": saying("at last")}, pause_s=0.01).chat(wait=False) as chat:
            await chat.press("e", "a", "r", "l", "y", "enter")
            await chat.until(lambda: chat.screen.has_begun and chat.messages[-1:] == ["at last"])
            assert chat.messages[0] == "early"

    run(body())


def test_prompt_keys_paste_and_history() -> None:
    async def body() -> None:
        async with Rig({"f16": saying("ok")}).chat() as chat:
            prompt = chat.screen.query_one(Prompt)
            await chat.press("a", "ctrl+j", "b")
            assert prompt.text == "a\nb"
            from textual import events

            prompt.post_message(events.Paste("one\r\ntwo\nthree\n"))
            await chat.pilot.pause()
            assert prompt.text == "a\nbone\ntwo\nthree\n" and chat.messages == []
            await chat.press("enter")
            await chat.until(lambda: len(chat.messages) == 2)
            await chat.answered()
            assert chat.messages[0] == "a\nbone\ntwo\nthree"
            await chat.press("up")
            assert prompt.text == "a\nbone\ntwo\nthree"
            await chat.press("down")
            assert prompt.text == ""
            await chat.press("enter")
            assert len(chat.messages) == 2

    run(body())


def test_a_very_long_paste_becomes_an_attachment_and_is_checked() -> None:
    async def body() -> None:
        async with Rig({"f16": saying("ok")}, n_ctx=30_000).chat() as chat:
            from textual import events

            chat.screen.query_one(Prompt).post_message(events.Paste("word " * 5_000))
            await chat.until(lambda: chat.shows("pasted text, 24.4 KiB, 25000 tokens"))
            await chat.say("what is this?")
            assert chat.messages[0].startswith("pasted text:\n```\nword") and chat.messages[0].endswith("this?")
            chat.screen.query_one(Prompt).post_message(events.Paste("word " * 7_000))
            await chat.until(lambda: chat.shows("35000 tokens"))
            await chat.press("x", "enter")
            await chat.until(lambda: chat.shows("the context holds 30000 tokens"))
            assert len(chat.messages) == 2

    run(body())


def test_copies_reach_the_clipboard_whole() -> None:
    answer = "see\n\n```python\nprint('[x]')\n```\n\nand\n\n```\nsecond\n```\n"

    async def body() -> None:
        async with Rig({"f16": saying(answer)}).chat() as chat:
            await chat.say("code?")
            await chat.press("shift+tab", "c")
            assert chat.app.clipboard == answer
            await chat.press("b")
            assert chat.app.clipboard.strip() == "print('[x]')"
            await chat.press("b")
            assert chat.app.clipboard.strip() == "second"
            await chat.press("escape")
            assert chat.screen.query_one(Prompt).has_focus

    run(body())


def test_deleting_a_message_can_be_undone() -> None:
    async def body() -> None:
        async with Rig({"f16": saying("ok")}).chat() as chat:
            await chat.say("one")
            await chat.say("two")
            await chat.press("shift+tab", "up", "d")
            await chat.until(lambda: chat.messages == ["one", "ok"])
            await chat.press("shift+tab", "u")
            await chat.until(lambda: chat.messages == ["one", "ok", "two", "ok"])

    run(body())


def test_a_preset_is_kept_with_the_conversation() -> None:
    async def body() -> None:
        async with Rig({"f16": saying("ok")}).chat() as chat:
            await chat.press("f2")
            await chat.until(lambda: chat.shows("System prompt"))
            await chat.press("down", "down", "enter")
            await chat.say("hi")
            conversation = chat.screen.dialogue.conversation
            assert conversation is not None and conversation.preset == {"name": "concise"}
            assert conversation.system.startswith("Answer in as few words")
            request = chat.screen.dialogue.request(-1)
            assert request.system == conversation.system and request.sampling.temperature == 0.3

    run(body())


def test_a_notice_is_read_wherever_it_wraps() -> None:
    """What the other tests rest on: no length of a path in front decides whether words are found."""

    async def body() -> None:
        async with Rig({"f16": saying("ok")}, size=(60, 20)).chat() as chat:
            for n in range(60):
                chat.screen.complain(f"cannot export: /{'x' * n} y.json is there already; choose another name")
                await chat.pilot.pause()
                assert chat.shows("already; choose another name"), n
                assert not chat.shows("choose a name"), n

    run(body())
