"""The server of `chat --web`: textual-serve with a page of our own, behind a link that cannot be guessed.

The chat reads and writes files as the one who started it. Any page in the browser and any user of the machine can reach
a loopback port, so everything lies below a path that only the printed link names.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable
from pathlib import Path

from aiohttp import web
from textual_serve.server import Server

PAGE_FOLDER = Path(__file__).parent / "page"
_KEY_BYTES = 16
_HINT = "Open the link that `edge-specquant chat --web` printed: the path behind the port is its key.\n"


class ChatServer(Server):
    """Serves a command to each tab that opens `link`."""

    def __init__(self, command: str, host: str, port: int, say: Callable[[str], None]) -> None:
        super().__init__(command, host, port, "edge_specquant", templates_path=PAGE_FOLDER)
        self._key, self._say = secrets.token_urlsafe(_KEY_BYTES), say

    @property
    def link(self) -> str:
        """What to open."""
        return f"{self.public_url}/{self._key}/"

    def serve(self, debug: bool = False) -> None:
        """Until Ctrl-C. Says where to look once somebody can."""
        del debug
        line = f"open {self.link} in a browser on this machine; Ctrl+C ends it"
        web.run_app(self._make_app(), host=self.host, port=self.port, access_log=None, print=lambda *_: self._say(line))

    async def on_startup(self, app: web.Application) -> None:
        """Nothing to say yet."""

    async def _make_app(self) -> web.Application:
        outside = web.Application()
        outside.add_subapp(f"/{self._key}", await super()._make_app())
        outside.router.add_get("/{anything:.*}", _refuse)
        return outside


async def _refuse(request: web.Request) -> web.Response:
    del request
    return web.Response(status=403, text=_HINT)
