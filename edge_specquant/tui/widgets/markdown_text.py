"""Markdown of a model's answer: nothing in it is obeyed. HTML and console markup are text, links copy themselves.

Takes text whose control characters are already visible. Streams with a cost a token that does not grow.
"""

from __future__ import annotations

import re
import time

from markdown_it import MarkdownIt
from markdown_it.token import Token
from textual.app import ComposeResult
from textual.content import Content
from textual.widgets import Label, Markdown, Static
from textual.widgets._markdown import MarkdownBlock, MarkdownFence

_LINE_BREAKS = re.compile("[\u2028\u2029]")  # str.splitlines breaks there and Markdown does not: lines would go astray
_SHORTEST_WAIT_S = 0.05
_COST_FACTOR = 4.0


class Fence(MarkdownFence):
    """A code block with its language and a `copy` to click."""

    DEFAULT_CSS = """
    Fence > .fence-head { height: 1; padding: 0 2; color: $text-muted; background: $foreground 6%; width: 1fr; }
    Fence > Label { padding: 0 2; }
    """

    def __init__(self, markdown: Markdown, token: Token, code: str) -> None:
        token.info = token.info.strip().split(" ")[0] or "text"  # never guessed: guessing reads all code every time
        super().__init__(markdown, token, code)

    def compose(self) -> ComposeResult:
        """The head, then the code."""
        self._fence_head = Static(self._head_text(), classes="fence-head")
        yield self._fence_head
        yield Label(self._highlighted_code, id="code-content", expand=True)

    def set_content(self, content: Content) -> None:
        """The code grew; while the fence's first line arrives, so does the language."""
        super().set_content(content)
        if self.is_mounted:
            self._fence_head.update(self._head_text())

    def _head_text(self) -> Content:
        language = "" if self.lexer == "text" else f"{self.lexer}  "
        return Content.assemble(language, ("copy", "underline"))

    def on_click(self) -> None:
        """A click on the block copies it."""
        self.post_message(AnswerMarkdown.CodeClicked(self._markdown, self.code))


class AnswerMarkdown(Markdown):
    """A Markdown widget for text from strangers."""

    BLOCKS: dict[str, type[MarkdownBlock]] = Markdown.BLOCKS | {"fence": Fence, "code_block": Fence}

    class CodeClicked(Markdown.LinkClicked):
        """Somebody clicked a code block; `href` is the code."""

        def __init__(self, markdown: Markdown, code: str) -> None:
            super().__init__(markdown, "")
            self.href = code

    def __init__(self, text: str = "") -> None:
        super().__init__(_as_lines(text), parser_factory=_parser, open_links=False)
        self._waiting = ""
        self._next_at = 0.0
        self._busy = False

    async def write(self, text: str, *, last: bool = False) -> None:
        """Adds text, now or with a later call: drawing never takes more than a fifth of the time."""
        self._waiting += _as_lines(text)
        if self._busy or not self._waiting or (not last and time.monotonic() < self._next_at):
            return
        self._busy = True
        try:
            begun = time.monotonic()
            piece, self._waiting = self._waiting, ""
            await self.append(piece)
            ended = time.monotonic()
            self._next_at = ended + max(_SHORTEST_WAIT_S, _COST_FACTOR * (ended - begun))
        finally:
            self._busy = False
        if last:
            await self.write("", last=True)

    @property
    def code_blocks(self) -> list[str]:
        """The code of every fenced block, in order."""
        return [block.code for block in self.query(MarkdownFence)]


def _parser() -> MarkdownIt:
    return MarkdownIt("gfm-like", {"html": False})


def _as_lines(text: str) -> str:
    return _LINE_BREAKS.sub("\n", text)
