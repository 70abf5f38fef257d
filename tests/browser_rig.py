"""A headless Chromium that a test can type into, driven by its own DevTools protocol (no driver to install).

Gives what a page's WebSocket received as text, and pictures. Skips nothing itself: `find_browser` says what is there.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import itertools
import re
import shutil
import tempfile
import time
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from typing import Any

import aiohttp
from patience import PATIENCE_S

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome", "microsoft-edge")
FLAGS = (
    "--headless=new", "--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-background-networking",
    "--disable-component-update", "--disable-sync", "--remote-debugging-port=0", "--window-size=1100,760",
)  # fmt: skip
_CONTROL = re.compile(r"\x1b\[[0-?]*[ -/]*[@-~]|\x1b\][^\x07]*(\x07|\x1b\\)|\x1b.")


def find_browser() -> str | None:
    """The path of a Chromium, or None."""
    return next((path for name in NAMES if (path := shutil.which(name))), None)


@dataclass
class Page:
    """One tab. `received`: what its WebSockets got, without terminal controls. `requested`: every URL it asked for."""

    socket: aiohttp.ClientWebSocketResponse
    received: str = ""
    requested: list[str] = field(default_factory=list)
    _numbers: Any = field(default_factory=lambda: itertools.count(1))
    _waiting: dict[int, asyncio.Future[dict[str, Any]]] = field(default_factory=dict)

    async def listen(self) -> None:
        """Reads events for ever."""
        async for message in self.socket:
            event = message.json()
            if "id" in event:
                self._waiting.pop(event["id"]).set_result(event)
            elif event.get("method") == "Network.webSocketFrameReceived":
                frame = event["params"]["response"]
                data = base64.b64decode(frame["payloadData"]) if frame["opcode"] == 2 else b""
                self.received += _CONTROL.sub("", data.decode("utf-8", "replace"))
            elif event.get("method") == "Network.requestWillBeSent":
                self.requested.append(event["params"]["request"]["url"])

    async def call(self, method: str, **params: Any) -> dict[str, Any]:
        """One command of the protocol."""
        number = next(self._numbers)
        self._waiting[number] = asyncio.get_running_loop().create_future()
        await self.socket.send_json({"id": number, "method": method, "params": params})
        answer = await asyncio.wait_for(self._waiting[number], PATIENCE_S)
        assert "error" not in answer, answer
        result: dict[str, Any] = answer["result"]
        return result

    async def open(self, url: str) -> None:
        """Goes there."""
        for domain in ("Network", "Page"):
            await self.call(f"{domain}.enable")
        await self.call("Page.navigate", url=url)

    async def until(self, condition: Callable[[], object], what: str) -> None:
        """Waits."""
        end = time.monotonic() + PATIENCE_S
        while not condition():
            assert time.monotonic() < end, f"{what}: not within {PATIENCE_S} s; received: {self.received[-2000:]}"
            await asyncio.sleep(0.1)

    async def type(self, text: str) -> None:
        """As from a keyboard; a line end is Enter."""
        for i, line in enumerate(text.split("\n")):
            if i:
                key = {"key": "Enter", "code": "Enter", "windowsVirtualKeyCode": 13, "text": "\r"}
                await self.call("Input.dispatchKeyEvent", type="keyDown", **key)
                await self.call("Input.dispatchKeyEvent", type="keyUp", **key)
            if line:
                await self.call("Input.insertText", text=line)

    async def picture(self) -> bytes:
        """What is on the screen, as PNG."""
        return base64.b64decode((await self.call("Page.captureScreenshot"))["data"])


@contextlib.asynccontextmanager
async def browser(path: str) -> AsyncIterator[Page]:
    """A browser with one empty tab, and nothing of it left behind."""
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        process = await asyncio.create_subprocess_exec(
            path, *FLAGS, f"--user-data-dir={folder}", "about:blank",
            stdout=asyncio.subprocess.DEVNULL, stderr=asyncio.subprocess.PIPE,
        )  # fmt: skip
        try:
            async with aiohttp.ClientSession() as session:
                port = await _debugging_port(process)
                async with session.get(f"http://127.0.0.1:{port}/json/list") as answer:
                    tabs = await answer.json()
                tab = next(tab for tab in tabs if tab["type"] == "page")
                async with session.ws_connect(tab["webSocketDebuggerUrl"], max_msg_size=0) as socket:
                    page = Page(socket)
                    listening = asyncio.create_task(page.listen())
                    yield page
                listening.cancel()
        finally:
            if process.returncode is None:
                process.kill()
            await process.communicate()


async def _debugging_port(process: asyncio.subprocess.Process) -> int:
    assert process.stderr is not None
    async with asyncio.timeout(PATIENCE_S) if hasattr(asyncio, "timeout") else contextlib.nullcontext():
        async for line in process.stderr:
            found = re.search(rb"DevTools listening on ws://127\.0\.0\.1:(\d+)/", line)
            if found:
                return int(found[1])
    raise AssertionError("the browser did not start")
