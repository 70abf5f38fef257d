"""Markdown of a model's answer: nothing in it is obeyed. HTML and console markup are text, links copy themselves.

Takes text whose control characters are already visible. An answer is drawn in chapters of a few dozen blocks each:
only the last one is drawn again when text arrives. A layout visits every widget though, so chapters well above the end
are one plain widget each until the answer is whole (`settle`): the cost of a token does not grow with the answer.
"""

from __future__ import annotations

import re
from itertools import pairwise

from markdown_it import MarkdownIt
from markdown_it.token import Token
from textual.app import ComposeResult
from textual.containers import Vertical
from textual.content import Content
from textual.widget import Widget
from textual.widgets import Label, Markdown, Static
from textual.widgets._markdown import MarkdownBlock, MarkdownFence

_LINE_BREAKS = re.compile("[\u2028\u2029]")  # str.splitlines breaks there and Markdown does not: lines would go astray
CHAPTER_BLOCKS = 12
LIVE_CHAPTERS = 2
PLAIN_CODE_CHARS = 6000  # a longer fence stays plain: colouring reads all of it, every time


class Fence(MarkdownFence):
    """A code block with its language and a `copy` to click."""

    DEFAULT_CSS = """
    Fence > .fence-head { height: 1; padding: 0 2; color: $text-muted; background: $foreground 6%; width: 1fr; }
    Fence > Label { padding: 0 2; }
    """

    def __init__(self, markdown: Markdown, token: Token, code: str) -> None:
        language = token.info.strip().split(" ")[0]
        self.language = language
        # Never guessed: guessing reads all of the code every time.
        token.info = "text" if not language or len(code) > PLAIN_CODE_CHARS else language
        super().__init__(markdown, token, code)

    def _copy_context(self, block: MarkdownBlock) -> None:
        super()._copy_context(block)
        if isinstance(block, Fence):
            self.language = block.language

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
        return Content.assemble(f"{self.language}  " if self.language else "", ("copy", "underline"))

    def on_click(self) -> None:
        """A click on the block copies it."""
        self.post_message(Chapter.CodeClicked(self._markdown, self.code))


class Chapter(Markdown):
    """A Markdown widget for text from strangers."""

    BLOCKS: dict[str, type[MarkdownBlock]] = Markdown.BLOCKS | {"fence": Fence, "code_block": Fence}
    DEFAULT_CSS = "Chapter { padding: 0 2; }"

    class CodeClicked(Markdown.LinkClicked):
        """Somebody clicked a code block; `href` is the code."""

        def __init__(self, markdown: Markdown, code: str) -> None:
            super().__init__(markdown, "")
            self.href = code

    def __init__(self, text: str = "") -> None:
        super().__init__(text, parser_factory=_parser, open_links=False)


class AnswerMarkdown(Vertical):
    """A whole answer; `write` adds to its end."""

    DEFAULT_CSS = """
    AnswerMarkdown { height: auto; }
    AnswerMarkdown > Static { height: auto; padding: 0 2 1 2; }
    """

    def __init__(self, text: str = "") -> None:
        super().__init__()
        self._texts = _chapters(_as_lines(text))
        self._last = Chapter(self._texts[-1])

    def compose(self) -> ComposeResult:
        """The chapters there are."""
        yield from (Chapter(text) for text in self._texts[:-1])
        yield self._last

    async def write(self, text: str) -> None:
        """Adds text, and begins a new chapter when the last one is long."""
        piece = _as_lines(text)
        self._texts[-1] += piece
        await self._last.append(piece)
        if len(self._last.children) > CHAPTER_BLOCKS:
            await self._turn_page()

    async def settle(self) -> None:
        """No more text comes: chapters that became plain are Markdown again."""
        for text, part in zip(tuple(self._texts), tuple(self.children), strict=True):
            if not isinstance(part, Chapter):
                await self._replace(part, Chapter(text))

    @property
    def source(self) -> str:
        """The text on show."""
        return "".join(self._texts)

    async def _turn_page(self) -> None:
        """The block that is still growing moves to a chapter of its own."""
        finished, growing = _before_last_block(self._texts[-1])
        if not finished or not growing:
            return
        self._texts[-1:] = [finished, growing]
        old, self._last = self._last, Chapter(growing)
        with self.app.batch_update():
            await old.children[-1].remove()
            await self.mount(self._last)
        if len(self.children) > LIVE_CHAPTERS + 1:
            place = len(self.children) - LIVE_CHAPTERS - 2
            text = self._texts[place].rstrip("\n")
            await self._replace(self.children[place], Static(text, markup=False))

    async def _replace(self, old: Widget, new: Widget) -> None:
        async with self.batch():
            await self.mount(new, after=old)
            await old.remove()


def _parser() -> MarkdownIt:
    return MarkdownIt("gfm-like", {"html": False})


def _as_lines(text: str) -> str:
    return _LINE_BREAKS.sub("\n", text)


def _block_starts(text: str) -> list[int]:
    """First lines of the top-level blocks."""
    tokens = _parser().parse(text)
    return [token.map[0] for token in tokens if token.level == 0 and token.map is not None and token.nesting >= 0]


def _before_last_block(text: str) -> tuple[str, str]:
    """(everything before the last block, the last block)."""
    starts = _block_starts(text)
    if not starts:
        return text, ""
    lines = text.split("\n")
    before = "".join(line + "\n" for line in lines[: starts[-1]])
    return before, text[len(before) :]


def _chapters(text: str) -> list[str]:
    """A stored answer in chapters."""
    starts = _block_starts(text)[CHAPTER_BLOCKS::CHAPTER_BLOCKS]
    lines = text.split("\n")
    cuts = [0, *starts, len(lines)]
    parts = ["\n".join(lines[a:b]) for a, b in pairwise(cuts)]
    return [part + "\n" for part in parts[:-1]] + parts[-1:]
