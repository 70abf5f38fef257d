"""A paste of any bytes, by Textual's own parser and in a real terminal: nothing is lost, nothing is sent."""

from __future__ import annotations

import shutil
import subprocess
import sys
import time
import uuid
from collections.abc import Iterator, Sequence
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from textual import events
from textual.drivers import linux_driver
from textual.message import Message
from tui_rig import Rig, run, saying

from edge_specquant.tui.app import ChatApp
from edge_specquant.tui.whole_pastes import WholePastes, any_bytes, readable
from edge_specquant.tui.widgets.prompt import Prompt

START, END = b"\x1b[200~", b"\x1b[201~"
LOG = b"\x1b[31mERROR\x1b[0m at \x1b]0;title\x07 \x1b[?25l\r\nnext \x1bOM \x1b[13u \x1b[A \xff\xc3\x28 \x00 end"
IN_TERMINAL = """
import sys; sys.path.insert(0, {tests!r})
from pathlib import Path
import edge_specquant.tui.app as app
from tui_rig import Rig, saying
rig = Rig({{"f16": saying("answered")}}, folder=Path({folder!r}))
made = app.ChatApp(rig.settings())
made.run()
made.release()
"""


def read(parts: Sequence[bytes]) -> list[Message]:
    """What the program is told of bytes that a terminal gives in these parts."""
    decode, parser = any_bytes("utf-8")().decode, WholePastes()
    return [message for part in parts if (text := decode(part)) for message in parser.feed(text)]


def split(data: bytes, cuts: Sequence[int]) -> list[bytes]:
    places = sorted({0, len(data), *(cut % (len(data) + 1) for cut in cuts)})
    return [data[i:j] for i, j in pairwise(places)]


def text_of(data: bytes) -> str:
    return readable(data.decode("utf-8", "surrogateescape"))


@pytest.mark.parametrize("byte", range(256))
def test_each_byte_stays_in_its_paste(byte: int) -> None:
    pasted = b"before\r" + bytes([byte]) + b"[31m\rafter\x1b"
    (paste,) = read([START + pasted + END])
    assert isinstance(paste, events.Paste) and paste.text == text_of(pasted)
    assert paste.text.startswith("before\n") and paste.text.endswith("[31m\nafter\u241b")
    paste.text.encode()


@settings(max_examples=150, deadline=None)
@given(pasted=st.binary(max_size=60) | st.just(LOG) | st.just(b"a" + START + b"b"), cuts=st.lists(st.integers(0, 99)))
def test_however_it_arrives(pasted: bytes, cuts: list[int]) -> None:
    keys = b"\x1b[A" if END not in pasted else b""
    found = read(split(b"x" + START + pasted + END + keys + b"y", cuts))
    pastes = [message.text for message in found if isinstance(message, events.Paste)]
    names = [message.key for message in found if isinstance(message, events.Key)]
    assert pastes == [text_of(pasted)] and names == ["x", *(["up"] if keys else []), "y"]


def test_an_end_mark_inside_a_paste_does_not_end_it() -> None:
    (paste,) = read([START + b"a" + END + b"rm -rf\r" + END])
    assert isinstance(paste, events.Paste) and paste.text == "a\u241b[201~rm -rf\n"
    assert len(read([START + b"a" + END + START + b"b" + END])) == 2


def test_outside_a_paste_keys_are_keys() -> None:
    keys = b"a\r\x1b[A\x1b[13;2u\x1bb\xff"
    names = [message.key for message in read([keys]) if isinstance(message, events.Key)]
    assert names[:3] == ["a", "enter", "up"] and "\udcff" not in "".join(names)


def test_the_program_reads_so() -> None:
    assert ChatApp(Rig({"f16": saying("x")}).settings()).driver_class
    assert linux_driver.XTermParser is WholePastes


def test_what_is_pasted_stands_in_the_prompt() -> None:
    async def body() -> None:
        async with Rig({"f16": saying("ok")}).chat() as chat:
            for message in read([START + LOG + END]):
                chat.app.post_message(message)
            await chat.until(lambda: chat.screen.query_one(Prompt).text)
            assert chat.screen.query_one(Prompt).text == text_of(LOG) and chat.messages == []

    run(body())


class Terminal:
    """A tmux server of its own with the chat in it."""

    def __init__(self, folder: Path) -> None:
        self._name = f"edge-{uuid.uuid4().hex}"
        self._folder = folder
        source = IN_TERMINAL.format(tests=str(Path(__file__).parents[1]), folder=str(folder))
        (folder / "chat.py").write_text(source, encoding="utf-8")
        self.tmux("-f", "/dev/null", "new-session", "-d", "-x", "100", "-y", "30", sys.executable, folder / "chat.py")

    def tmux(self, *arguments: object) -> str:
        command = ["tmux", "-L", self._name, *map(str, arguments)]
        return subprocess.run(command, capture_output=True, check=True, timeout=60).stdout.decode("utf-8", "replace")

    def until(self, text: str) -> str:
        end = time.monotonic() + 120
        while text not in (screen := self.tmux("capture-pane", "-p")):
            assert time.monotonic() < end, f"'{text}' did not come:\n{screen}"
            time.sleep(0.1)
        return screen

    def paste(self, data: bytes) -> None:
        (self._folder / "pasted").write_bytes(data)
        self.tmux("load-buffer", self._folder / "pasted")
        self.tmux("paste-buffer", "-p")


@pytest.fixture
def terminal(tmp_path: Path) -> Iterator[Terminal]:
    if not shutil.which("tmux"):
        pytest.skip("there is no tmux here")
    made = Terminal(tmp_path)
    yield made
    made.tmux("kill-server")


def test_in_a_real_terminal(terminal: Terminal) -> None:
    terminal.until("Ask anything")
    every = bytes(byte for byte in range(256) if byte not in b"\r\n")
    terminal.paste(b"first\r" + LOG + b"\n" + every + b"\nlast")
    screen = terminal.until("last")
    assert "answered" not in screen and "\\xff" in screen
    terminal.tmux("send-keys", "Enter")
    screen = terminal.until("answered")
    assert "first" in screen and "ERROR" in screen
