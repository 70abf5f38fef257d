"""`--continue`, files and presets: what is kept is gone on with, in both chats and in `run`."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner
from tui_rig import Rig, run, saying

from edge_specquant.cli.main import root
from edge_specquant.cli.shared.continuing import LAST, conversation_id, kept_in, preset, with_files
from edge_specquant.config import store_path
from edge_specquant.errors import EdgeSpecQuantError, FileError, UsageError
from edge_specquant.request import Request
from edge_specquant.store import Store


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EDGE_SPECQUANT_HOME", str(tmp_path / "home"))


def two_conversations() -> tuple[int, int]:
    """(an older one that is pinned, the one last used)"""
    with Store.open(store_path()) as store:
        numbers = [store.create(f"talk {i}", system="be brief").id for i in range(2)]
        for number in numbers:
            store.add(number, "user", f"question {number}")
            store.add(number, "assistant", f"answer {number}")
        store.set_pinned(numbers[0], True)
    return numbers[0], numbers[1]


def test_the_last_one_is_the_last_used_and_a_number_names_one() -> None:
    pinned, last = two_conversations()
    with Store.open(store_path()) as store:
        store.add(last, "user", "more")
        assert conversation_id(store, LAST) == last and conversation_id(store, str(pinned)) == pinned
        for wrong in ("x", "9999"):
            with pytest.raises(EdgeSpecQuantError):
                conversation_id(store, wrong)
    with Store.in_memory() as empty, pytest.raises(UsageError, match="no conversation yet"):
        conversation_id(empty, LAST)


def test_an_answer_is_kept_below_its_question() -> None:
    first, _ = two_conversations()
    with kept_in(str(first), Request(prompt="and then?", max_tokens=5)) as (request, keep):
        keep("so it ")
        keep("was")
    assert [turn["content"] for turn in request.messages] == [f"question {first}", f"answer {first}", "and then?"]
    assert request.system == "be brief" and request.max_tokens == 5
    with Store.open(store_path()) as store:
        assert [message.text for message in store.messages(first)][2:] == ["and then?", "so it was"]
    with pytest.raises(ZeroDivisionError), kept_in(str(first), Request(prompt="x")) as (_, keep):
        keep("half")
        raise ZeroDivisionError
    with Store.open(store_path()) as store:
        assert store.messages(first)[-1].text == "half" and store.messages(first)[-1].status != "complete"


def test_files_stand_before_the_prompt_with_their_names(tmp_path: Path) -> None:
    for name, text in (("a.py", "x = 1\n"), ("b.md", "```\nfence\n```")):
        (tmp_path / name).write_text(text)
    found = with_files("what is this?", [str(tmp_path / "a.py"), str(tmp_path / "b.md")])
    assert found.startswith("a.py:\n```\nx = 1\n```\n\nb.md:\n````") and found.endswith("what is this?")
    assert with_files("alone", []) == "alone"
    with pytest.raises(FileError):
        with_files("x", [str(tmp_path / "none")])


def test_a_preset_is_known_or_named_as_wrong() -> None:
    assert preset("exact").sampling == {"temperature": 0.0}
    with pytest.raises(UsageError, match="there are default, exact"):
        preset("nothing")


@pytest.mark.usefixtures("demo_family")
def test_run_goes_on_with_a_conversation(tmp_path: Path, isolated_home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EDGE_SPECQUANT_HOME", str(isolated_home))
    monkeypatch.setenv("EDGE_SPECQUANT_STORE_PATH", str(tmp_path / "own.db"))
    with Store.open(tmp_path / "own.db") as store:
        number = store.create("colours").id
        store.add(number, "user", "Name a colour.")
        store.add(number, "assistant", "Blue.")
    (tmp_path / "note.txt").write_text("the sea")
    arguments = ["run", "demo", "Another one.", "--max-tokens", "6", "--preset", "exact", "--json"]
    done = CliRunner().invoke(root, [*arguments, "-f", str(tmp_path / "note.txt"), "--continue"])
    assert done.exit_code == 0, done.output
    text = json.loads(done.stdout.strip().splitlines()[-1])["text"]
    with Store.open(tmp_path / "own.db") as store:
        *_, asked, answer = store.messages(number)
    assert asked.text == "note.txt:\n```\nthe sea\n```\n\nAnother one." and answer.text == text


def test_the_full_screen_begins_with_it() -> None:
    rig = Rig({"f16": saying("third")}, first_conversation=lambda store: conversation_id(store, LAST))
    number = rig.store.create("old talk").id
    rig.store.add(number, "user", "the first question")
    rig.store.add(number, "assistant", "the first answer")

    async def body() -> None:
        async with rig.chat() as chat:
            await chat.until(lambda: "the first answer" in chat.text)
            await chat.say("and more")
            assert chat.messages == ["the first question", "the first answer", "and more", "third"]

    run(body())
