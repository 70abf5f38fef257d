"""The pure parts: replies, figures, attachments, presets, preferences, Markdown in chapters, the plain fallback."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edge_specquant.cli.verbs.chat import needs_plain
from edge_specquant.engine.events import TokenEvent
from edge_specquant.errors import EdgeSpecQuantError, UsageError
from edge_specquant.params import SamplingParams
from edge_specquant.tui.answers.attachments import Attachment, read_attachment, with_attachments
from edge_specquant.tui.answers.dialogue import title_of
from edge_specquant.tui.answers.redo import judge_for
from edge_specquant.tui.answers.reply import Reply, footnote, runs_of
from edge_specquant.tui.choosing import own_presets, preferences
from edge_specquant.tui.choosing.presets import PRESETS
from edge_specquant.tui.news import ReplyEnd
from edge_specquant.tui.panel_figures import Rounds, last_rounds, sections
from edge_specquant.tui.widgets.markdown_text import CODE, _chapters, _turn, fenced
from edge_specquant.tui.widgets.origin_text import _in_blocks, with_departure

ORIGINS = st.sampled_from(["target", "q4", "lookup", "agreed"])


@given(st.lists(st.tuples(st.text(max_size=4), ORIGINS), max_size=40))
def test_a_reopened_reply_has_the_runs_it_had(pieces: list[tuple[str, str]]) -> None:
    reply = Reply(1, 0.0)
    for i, (text, origin) in enumerate(pieces):
        reply.take([TokenEvent(text, i, origin)], float(i))
    record = reply.record(None, "f16", "q4", {})
    assert reply.text == "".join(text for text, _ in pieces)
    assert runs_of(reply.text, record) == [run for run in reply.runs if run[1]]


@given(st.lists(st.tuples(ORIGINS, st.text(alphabet="ab\n", min_size=1, max_size=900)), max_size=12))
def test_blocks_of_colours_hold_all_the_text(runs: list[tuple[str, str]]) -> None:
    blocks = _in_blocks(runs)
    assert "".join(text for block in blocks for _, text in block) == "".join(text for _, text in runs)
    assert "".join(text for kind, text in with_departure(runs) if kind != "mark") == "".join(t for _, t in runs)


LINES = st.sampled_from(["# h\n", "text\n", "\n", "- a\n", "```\n", "| a |\n", "1. x", "    code\n"])


@given(st.lists(LINES, max_size=90))
def test_chapters_hold_all_the_text(lines: list[str]) -> None:
    text = "".join(lines)
    assert "".join(_chapters(text)) == text
    turn = _turn(text)
    if turn is not None:
        opening = "```\n" if turn.seam == CODE else ""
        assert turn.finished and turn.growing.startswith(opening)
        assert turn.finished + turn.growing[len(opening) :] == text
        before, after = fenced(turn.finished), fenced(turn.growing)
        joined = [*before[:-1], before[-1] + after[0], *after[1:]] if opening else [*before, *after]
        assert [code.rstrip() for code in joined] == [code.rstrip() for code in fenced(text)]


def test_the_panel_says_why_a_route_was_taken() -> None:
    end = ReplyEnd(1, "stop", None, "q4", "lookup", reasons=("policy fast", "score 0.177 is low"))
    (route,) = sections(None, None, end, None, 0.0)
    assert (route.title, dict(route.rows)["target"]) == ("route", "q4")
    assert [value for name, value in route.rows if not name] == ["policy fast", "score 0.177 is low"]


def test_a_reply_that_broke_off_has_no_pace() -> None:
    reply = Reply(1, 0.0)
    reply.take([TokenEvent("a", 1), TokenEvent("b", 2)], 1.0)
    reply.take([TokenEvent("c", 3)], 1.5)

    def labels(end: ReplyEnd | None) -> list[str]:
        return [label for label, _ in sections(None, reply, end, None, 2.0)[0].rows]

    assert "now" in labels(None)
    assert not {"now", "decode"} & set(labels(ReplyEnd(1, "interrupted", None, "f16", "none")))


def test_unknown_figures_are_absent() -> None:
    assert sections(None, None, None, None, 0.0) == []
    assert footnote({}) == "" and footnote({"stats": {"n_generated": 3, "tokens_per_s": None}}) == "3 tokens"


@pytest.mark.parametrize(
    ("writer", "siblings", "judge"),
    [("q4", ["f16", "q8", "q4"], "f16"), ("f16", ["f16", "q4"], None), ("q4", ["q4"], None), ("", ["f16"], "f16")],
)
def test_the_judge_is_more_precise_than_the_writer(writer: str, siblings: list[str], judge: str | None) -> None:
    assert judge_for(writer, siblings) == judge


@pytest.mark.parametrize(
    ("name", "content", "said"),
    [
        ("a.bin", b"\xff\xfe\x00", "not text"),
        ("b.txt", b"a\x00b", "NUL"),
        ("c.txt", b"x" * (5 << 20), "at most"),
        ("missing.txt", None, "cannot be read"),
    ],
)
def test_what_cannot_be_attached_says_why(tmp_path: Path, name: str, content: bytes | None, said: str) -> None:
    path = tmp_path / name
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(EdgeSpecQuantError, match=said):
        read_attachment(str(path))
    with pytest.raises(EdgeSpecQuantError, match="folder"):
        read_attachment(str(tmp_path))
    with pytest.raises(EdgeSpecQuantError):
        read_attachment("nul\0name")


def test_an_attachment_is_fenced_beyond_its_own_fences(tmp_path: Path) -> None:
    path = tmp_path / "Ünïcode name.md"
    path.write_text("````\ncode\n````\n", encoding="utf-8")
    sent = with_attachments("explain", (read_attachment(str(path)),))
    assert sent == "Ünïcode name.md:\n`````\n````\ncode\n````\n`````\n\nexplain"
    assert Attachment("x", "y" * 100, 4000).problem(4096) is None
    assert "the context holds 4096" in str(Attachment("x", "y" * 100, 4090).problem(4096))
    assert Attachment("x", "y").problem(None) is None


def test_presets_leave_what_they_do_not_name() -> None:
    fields = {"sampling": SamplingParams(temperature=0.7, top_k=7), "max_tokens": 5}
    for preset in PRESETS:
        applied = preset.applied_to(dict(fields))
        assert applied["max_tokens"] == 5 and applied["sampling"].top_k == 7


@pytest.mark.parametrize("text", ["", "nonsense", "[]", '{"theme": 3, "show_stats": "yes"}', '{"other": 1}'])
def test_bad_preferences_are_the_defaults(tmp_path: Path, text: str) -> None:
    path = tmp_path / "chat.json"
    path.write_text(text, encoding="utf-8")
    assert preferences.load(path) == preferences.Preferences()
    preferences.save(preferences.Preferences(theme="nord"), path)
    assert preferences.load(path).theme == "nord"
    preferences.save(preferences.Preferences(), tmp_path / "chat.json" / "impossible")


@pytest.mark.parametrize(
    ("environment", "is_terminal", "plain"),
    [
        ({}, True, False),
        ({}, False, True),
        ({"NO_COLOR": "1"}, True, True),
        ({"NO_COLOR": ""}, True, False),
        ({"TERM": "dumb"}, True, True),
        ({"TEXTUAL_DRIVER": "x", "TERM": "dumb"}, False, False),
    ],
)
def test_where_the_full_screen_would_be_wrong(environment: dict[str, str], is_terminal: bool, plain: bool) -> None:
    assert needs_plain(environment, is_terminal) is plain


@given(st.text())
def test_a_title_is_one_short_line(text: str) -> None:
    title = title_of(text)
    assert len(title) <= 48 and len(title.splitlines()) <= 1


def test_presets_of_ones_own_are_read_and_added(tmp_path: Path) -> None:
    path = tmp_path / "presets.toml"
    assert own_presets.load(path) == own_presets.OwnPresets()
    system = 'Say "ahoy"\nand \\ \x7f 海.'
    own_presets.add(path, "a pirate [x]", system)
    path.write_text(path.read_text(encoding="utf-8") + '\n[warm]\ntemperature = 1.5\n[bad]\nheat = "x"\n', "utf-8")
    own = own_presets.load(path)
    assert [preset.name for preset in own.presets] == ["a pirate [x]", "warm"]
    assert own.presets[0].system == system and own.presets[1].sampling == {"temperature": 1.5}
    assert "[bad] heat" in own.problem
    for name in ("", "code", "warm"):
        with pytest.raises(UsageError):
            own_presets.add(path, name, "x")
    path.write_text("[[", encoding="utf-8")
    assert "passed over" in own_presets.load(path).problem


def test_rounds_are_told_by_the_first_token_of_each() -> None:
    reply = Reply(1, 0.0)
    rounds = [("a", None, "target"), ("b", 3, "q4"), ("c", None, "q4"), ("d", None, "target"), ("e", 2, "target")]
    reply.take([TokenEvent(text, 1, who, n_draft=n) for text, n, who in rounds], 1.0)
    assert last_rounds(reply) == Rounds((0.0, 3.0, 2.0), (0.0, 2.0, 0.0))
    assert last_rounds(Reply(1, 0.0)) == last_rounds(None) == Rounds()
