"""Markdown of a model's answer: nothing in it is obeyed. HTML and console markup are text, links copy themselves.

Takes text whose control characters are already visible. An answer is drawn in chapters of a few blocks each. Only the
last one is drawn again when text arrives; finished ones become pages, one plain widget each, so that the cost of a
token does not grow with the answer or the conversation.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import pairwise

from markdown_it import MarkdownIt
from markdown_it.token import Token
from textual import on
from textual.app import ComposeResult
from textual.await_complete import AwaitComplete
from textual.containers import Vertical, VerticalScroll
from textual.content import Content
from textual.widget import Widget
from textual.widgets import Label, Markdown, Static
from textual.widgets._markdown import (
    MarkdownBlock,
    MarkdownBulletList,
    MarkdownFence,
    MarkdownList,
    MarkdownOrderedList,
)

from .page import CodeClicked, Page, Sheet, press

_LINE_BREAKS = re.compile("[\u2028\u2029]")  # str.splitlines breaks there and Markdown does not: lines would go astray
CHAPTER_BLOCKS = 8
CHAPTER_LINES = 20  # of one list or one code block, before it goes on in another chapter
LIST, CODE = "list", "code"
PLAIN_CODE_CHARS = 6000  # a longer fence stays plain: colouring reads all of it, every time


class Fence(MarkdownFence):
    """A code block with its language and a `copy` to click."""

    # Long lines are folded: what lies beside the screen cannot be reached without a mouse.
    DEFAULT_CSS = """
    Fence { overflow: hidden hidden; }
    Fence > .fence-head { height: 1; padding: 0 2; color: $text-muted; background: $foreground 6%; width: 1fr; }
    Fence > Label { padding: 0 2; width: 1fr; }
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

    def show(self, code: str) -> None:
        """Other code."""
        self.code = code
        self._highlighted_code = self.highlight(code, self.lexer, dark=self.app.current_theme.dark)
        self.set_content(self._highlighted_code)

    def set_content(self, content: Content) -> None:
        """The code grew; while the fence's first line arrives, so does the language."""
        super().set_content(content)
        if self.is_mounted:
            self._fence_head.update(self._head_text())

    def _head_text(self) -> Content:
        return Content.assemble(f"{self.language}  " if self.language else "", ("copy", "underline"))

    def on_click(self) -> None:
        """A click on the block copies it."""
        self.post_message(CodeClicked(self.code))


async def _grow(old: MarkdownList, new: MarkdownBlock) -> bool:
    """Draws only the last item anew and those that follow; False where that would not do."""
    n_before, n_after = len(old.children), len(new._blocks)
    # At ten items numbers become wider, and all move.
    if type(new) is not type(old) or not 0 < n_before <= n_after or len(str(n_before)) != len(str(n_after)):
        return False
    await old.children[-1].remove()
    await old.mount(*list(new.compose())[n_before - 1 :])
    old._copy_context(new)
    return True


class Bullets(MarkdownBulletList):
    """A list that is not made anew for every word."""

    async def _update_from_block(self, block: MarkdownBlock) -> None:
        if not await _grow(self, block):
            await super()._update_from_block(block)


class Numbers(MarkdownOrderedList):
    """The same with numbers."""

    async def _update_from_block(self, block: MarkdownBlock) -> None:
        if not await _grow(self, block):
            await super()._update_from_block(block)


class Chapter(Markdown):
    """A Markdown widget for text from strangers. `text`: what it holds, once it is finished.

    Classes: `goes-on` when its last block does, in the next chapter; `continues` when its first block is such a one.
    """

    BLOCKS: dict[str, type[MarkdownBlock]] = Markdown.BLOCKS | {
        "fence": Fence,
        "code_block": Fence,
        "bullet_list_open": Bullets,
        "ordered_list_open": Numbers,
    }
    BLANK = True
    DEFAULT_CSS = """
    Chapter { padding: 0 2; }
    Chapter.goes-on > MarkdownList:last-child, Chapter.goes-on > Fence:last-child { margin-bottom: 0; }
    Chapter.continues > Fence:first-child { margin-top: 0; }
    Chapter.continues > Fence:first-child > .fence-head { display: none; }
    """

    def __init__(self, text: str = "", classes: str = "") -> None:
        super().__init__(text, parser_factory=_parser, open_links=False, classes=classes)
        self.text = text
        self.is_still = True
        self._grows = False

    def append(self, markdown: str) -> AwaitComplete:
        """Adds to the last block; by itself, Markdown would take the first addition to a given text for a new one."""
        if not self._grows:
            self._grows = True
            self._last_parsed_line = max(_block_starts(_parser().parse(self.source)), default=0)
        return super().append(markdown)

    def can_give(self, seam: str) -> bool:
        """Whether `give_away` has something to take."""
        block = self.children[-1] if self.children else None
        is_long_list = isinstance(block, MarkdownList) and len(block.children) > 1
        return block is not None and (not seam or isinstance(block, Fence) or is_long_list)

    async def give_away(self, seam: str) -> None:
        """The last block, or where there is a seam the last item or line of it, is shown in another chapter."""
        block, self.is_still = self.children[-1], False
        if not seam:
            await block.remove()
            return
        self.add_class("goes-on")
        if isinstance(block, Fence):
            block.show(block.code.rpartition("\n")[0])
        else:
            await block.children[-1].remove()


class AnswerMarkdown(Vertical):
    """An answer; `write` adds to its end until `settle`. n_live: chapters at its end that are drawn before seen."""

    BLANK = True  # nothing of it is seen between its parts, and blank lines are drawn for next to nothing
    DEFAULT_CSS = "AnswerMarkdown { height: auto; }"

    def __init__(self, text: str = "", *, is_whole: bool = False, n_live: int = 3) -> None:
        super().__init__()
        self._source = [_as_lines(text)]
        self._settled = is_whole
        self._changing = asyncio.Lock()
        texts = _chapters(self.source)
        n_pages = max(0, len(texts) - n_live)
        self._growing = texts[-1]
        self._parts: list[Page | Chapter] = [
            Page(Sheet(text)) if i < n_pages else Chapter(text) for i, text in enumerate(texts)
        ]

    def compose(self) -> ComposeResult:
        """The parts there are."""
        yield from self._parts

    def on_mount(self) -> None:
        """What is finished becomes pages as soon as it is drawn."""
        self._press_soon()

    def on_resize(self) -> None:
        """Now it is drawn, or drawn anew."""
        self._press_soon()

    async def write(self, text: str) -> None:
        """Adds text, and begins a new chapter when the last one is long."""
        await self._press_finished()
        async with self._changing:
            piece = _as_lines(text)
            self._source.append(piece)
            last = self._parts[-1]
            assert isinstance(last, Chapter)
            self._growing += piece
            await last.append(piece)
            if len(last.children) > CHAPTER_BLOCKS or self._growing.count("\n") > CHAPTER_LINES:
                await self._turn_page(last)

    def settle(self) -> None:
        """No more text comes."""
        self._settled = True
        last = self._parts[-1]
        if isinstance(last, Chapter):
            last.text = self._growing
        self._press_soon()

    @property
    def source(self) -> str:
        """The text on show."""
        self._source = ["".join(self._source)]
        return self._source[0]

    async def _turn_page(self, last: Chapter) -> None:
        """What is still growing moves to a chapter of its own."""
        turn = _turn(self._growing)
        if turn is None or not last.can_give(turn.seam):
            return
        chapter = Chapter(turn.growing, "continues" if turn.seam == CODE else "")
        last.text, self._growing = turn.finished, turn.growing
        self._parts.append(chapter)
        with self.app.batch_update():
            await last.give_away(turn.seam)
            await self.mount(chapter)
        # Once for the new styles, once for the layout that they want.
        self.call_after_refresh(self.call_after_refresh, self._calm, last)

    def _calm(self, chapter: Chapter) -> None:
        """What it gave away is gone from the screen too."""
        chapter.is_still = True
        self._press_soon()

    def _press_soon(self) -> None:
        self.call_after_refresh(self._press_finished)

    async def _press_finished(self) -> None:
        """Chapters that are drawn and grow no more become pages, or sheets of the page before."""
        async with self._changing:
            for part in tuple(self._parts):
                if isinstance(part, Chapter) and part.is_still and (self._settled or part is not self._parts[-1]):
                    pressed = press(part, {fence: fence.code for fence in part.query(Fence)})
                    if pressed is not None:
                        await self._put_away(part, Sheet(part.text, pressed))

    async def _put_away(self, chapter: Chapter, sheet: Sheet) -> None:
        place = self._parts.index(chapter)
        before = self._parts[place - 1] if place else None
        if isinstance(before, Page) and before.takes(sheet):
            del self._parts[place]
            with self.app.batch_update():
                before.add(sheet)
                await chapter.remove()
        else:
            await self._replace(chapter, Page(sheet))

    @on(Page.Unread)
    async def _open(self, unread: Page.Unread) -> None:
        """Somebody looks at a page that is not as it should be: what is seen of it is Markdown for a moment."""
        unread.stop()
        page = unread.page
        async with self._changing:
            if page not in self._parts:
                return
            if len(page.sheets) > 1:
                await self._replace(page, *(Page(sheet, is_stale=True) for sheet in page.sheets))
                return
            chapter = Chapter(page.sheets[0].text)
            height, is_above = page.outer_size.height, page.region.y < self._pane().region.y
            await self._replace(page, chapter)
        self.call_after_refresh(self._opened, chapter, height if is_above else None)

    async def _opened(self, chapter: Chapter, height: int | None) -> None:
        """What is on the screen stays where it is, however many lines were gained or lost above it."""
        pane = self._pane()
        if height is not None and not pane.is_vertical_scroll_end and chapter.outer_size.height != height:
            pane.scroll_relative(y=chapter.outer_size.height - height, animate=False)
        await self._press_finished()

    @on(CodeClicked)
    def _code_clicked(self, clicked: CodeClicked) -> None:
        """All of a block that goes on over several chapters."""
        whole = next((code for code in fenced(self.source) if clicked.code in code), clicked.code)
        if whole != clicked.code:
            clicked.stop()
            self.post_message(CodeClicked(whole))

    async def _replace(self, old: Page | Chapter, *new: Page | Chapter) -> None:
        place = self._parts.index(old)
        self._parts[place : place + 1] = new
        with self.app.batch_update():
            await self.mount(*new, after=old)
            await old.remove()

    def _pane(self) -> Widget:
        return next(one for one in self.ancestors if isinstance(one, VerticalScroll))


def fenced(text: str) -> list[str]:
    """The code blocks of a text."""
    return [token.content for token in _parser().parse(text) if token.type in ("fence", "code_block")]


def _parser() -> MarkdownIt:
    return MarkdownIt("gfm-like", {"html": False})


def _as_lines(text: str) -> str:
    return _LINE_BREAKS.sub("\n", text)


@dataclass(frozen=True, slots=True)
class Turn:
    """A chapter cut in two. seam: LIST or CODE when one goes on in the next chapter, else empty."""

    finished: str
    growing: str
    seam: str = ""


def _block_starts(tokens: Iterable[Token]) -> list[int]:
    """First lines of the top-level blocks."""
    return [token.map[0] for token in tokens if token.level == 0 and token.map is not None and token.nesting >= 0]


def _turn(text: str) -> Turn | None:
    """Cuts before the last block; in a long list before its last item, in open code before its last line."""
    tokens = _parser().parse(text)
    starts = _block_starts(tokens)
    if len(starts) > 1:
        return _cut(text, starts[-1])
    first = next((token for token in tokens if token.level == 0), None)
    if first is None or first.map is None:
        return None
    if first.type in ("bullet_list_open", "ordered_list_open"):
        items = [token.map[0] for token in tokens if token.type == "list_item_open" and token.level == 1 and token.map]
        return _cut(text, items[-1], LIST) if len(items) > 1 else None
    if first.type == "fence" and not text.rstrip().endswith(first.markup):
        line = text.rstrip().count("\n")  # the last one that shows: blanks at the end of code are not drawn
        if line < first.map[0] + 2:
            return None
        cut, opening = _cut(text, line, CODE), text.split("\n")[first.map[0]]
        return Turn(cut.finished, f"{opening}\n{cut.growing}", CODE)
    return None


def _cut(text: str, line: int, seam: str = "") -> Turn:
    finished = "".join(each + "\n" for each in text.split("\n")[:line])
    return Turn(finished, text[len(finished) :], seam)


def _chapters(text: str) -> list[str]:
    """A stored answer in chapters."""
    starts = _block_starts(_parser().parse(text))[CHAPTER_BLOCKS::CHAPTER_BLOCKS]
    lines = text.split("\n")
    cuts = [0, *starts, len(lines)]
    parts = ["\n".join(lines[a:b]) for a, b in pairwise(cuts)]
    return [part + "\n" for part in parts[:-1]] + parts[-1:]
