"""`chat --web`: the real command, its page, and a real browser where there is one."""

from __future__ import annotations

import asyncio
import contextlib
import re
import signal
import socket
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest
from patience import PATIENCE_S

from edge_specquant.errors import UsageError
from edge_specquant.gguf.family.family import Family
from edge_specquant.store import Store
from edge_specquant.tui.web.web import HOST, command_line, free_port

pytest.importorskip("textual_serve", reason="the extra [web] is not installed")

QUESTION = "Say hello."


@contextlib.contextmanager
def serving(*arguments: str) -> Iterator[str]:
    """The real command; gives the link it printed."""
    command = [sys.executable, "-u", "-m", "edge_specquant", "chat", *arguments, "--web", "--port", "0"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    try:
        line = process.stdout.readline()
        found = re.search(r"http://127\.0\.0\.1:\d+/\S+/", line)
        assert found, line
        yield found[0]
    finally:
        process.send_signal(signal.SIGINT if sys.platform != "win32" else signal.SIGTERM)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(PATIENCE_S)
        process.kill()
        process.communicate()


def status_of(url: str) -> int:
    try:
        with urllib.request.urlopen(url, timeout=PATIENCE_S) as answer:
            return int(answer.status)
    except urllib.error.HTTPError as error:
        with error:
            return int(error.code)


def test_only_the_printed_link_opens_and_nothing_comes_from_elsewhere() -> None:
    with serving("demo") as link:
        with urllib.request.urlopen(link, timeout=PATIENCE_S) as answer:
            page = answer.read().decode()
        own, _, _ = link.rpartition(link.split("/")[3])
        ours = (link, link.replace("http:", "ws:"))
        assert all(url.startswith(ours) for url in re.findall(r"\w+://[^\"')\s]+", page)), page
        assert status_of(f"{link}static/js/textual.js") == 200
        for path in ("", "ws", "static/js/textual.js", "wrong/", "wrong/ws"):
            assert status_of(own + path) == 403, path


def test_a_port_that_is_taken_is_a_sentence() -> None:
    assert free_port(0) > 0
    with socket.socket() as taken:
        taken.bind((HOST, 0))
        taken.listen()
        with pytest.raises(UsageError, match="try --port 0"):
            free_port(taken.getsockname()[1])


@pytest.mark.skipif(sys.platform == "win32", reason="a POSIX shell")
def test_arguments_reach_the_program_whole() -> None:
    words = ["chat", "a family's name", "--system", 'say "hi" & $HOME `x`']
    line = command_line(words).replace("from edge_specquant.cli import main; main()", "import sys; print(sys.argv[1:])")
    assert subprocess.check_output(line, shell=True, text=True).strip() == str(words)


def test_the_chat_answers_in_a_browser(demo_family: Family, isolated_home: Path, tmp_path: Path) -> None:
    """A question typed into the page is answered there by the demo, and kept."""
    from browser_rig import browser, find_browser

    path = find_browser()
    if path is None:
        pytest.skip("no Chromium on this machine")
    kept = tmp_path / "kept.db"

    async def body(link: str) -> None:
        async with browser(path) as page:
            await page.open(link)
            await page.until(lambda: " ready" in page.received, "the model in memory")
            await page.type(f"{QUESTION}\n")
            await page.until(lambda: re.search(r"\d tokens · ", page.received), "the answer's figures")
            picture = await page.picture()
            assert picture.startswith(b"\x89PNG") and len(picture) > 10_000
            assert all(url.startswith((link, "about:", "data:")) for url in page.requested)

    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("EDGE_SPECQUANT_STORE_PATH", str(kept))
        with serving(demo_family.name, "--max-tokens", "12", "--temperature", "0") as link:
            asyncio.run(body(link))
    store = Store.open(kept)
    try:
        (conversation,) = store.conversations()
        question, answer = store.messages(conversation.id)
        assert question.text == QUESTION and answer.text and answer.status == "complete"
    finally:
        store.close()
