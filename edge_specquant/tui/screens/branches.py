"""The tree of a conversation: every version of every message. Enter puts the branch through one on show."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from rich.text import Text
from textual import on
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical
from textual.screen import ModalScreen
from textual.widgets import Static, Tree
from textual.widgets.tree import TreeNode

from ...printable import shown
from ...store import Message

LABEL_CHARS = 100


class Branches(ModalScreen[int | None]):
    """Gives the id of the message to show, or None."""

    BINDINGS: ClassVar[list[BindingType]] = [Binding("escape,q", "dismiss(None)", "Back")]

    def __init__(self, messages: Sequence[Message], on_show: Sequence[int]) -> None:
        super().__init__()
        self._messages, self._shown_ids = messages, frozenset(on_show)
        self._leaf = on_show[-1] if on_show else None

    def compose(self) -> ComposeResult:
        """The tree in a window."""
        with Vertical(classes="window tall"):
            yield Static("Branches", classes="window-title", markup=False)
            tree: Tree[int] = Tree("conversation")
            tree.show_root = False
            tree.guide_depth = 2
            yield tree
            yield Static("● on show    Enter shows a branch, Esc goes back", classes="window-hint", markup=False)

    def on_mount(self) -> None:
        """Grows the tree. A chain without forks stays at one depth, so that long conversations do not run off."""
        tree = self.query_one(Tree)
        versions: dict[int | None, int] = {}
        for message in self._messages:
            versions[message.parent_id] = versions.get(message.parent_id, 0) + 1
        nodes: dict[int | None, TreeNode[int]] = {None: tree.root}
        leaf: TreeNode[int] | None = None
        for message in self._messages:
            forked = versions[message.parent_id] > 1
            parent = nodes.get(message.parent_id, tree.root)
            grows = forked and message.id in versions
            node = parent.add(self._label(message), message.id, expand=True, allow_expand=grows)
            nodes[message.id] = node if forked else parent
            leaf = node if message.id == self._leaf else leaf
        tree.root.expand()
        tree.focus()
        if leaf is not None:
            self.call_after_refresh(tree.move_cursor, leaf)

    @on(Tree.NodeSelected)
    def _selected(self, event: Tree.NodeSelected[int]) -> None:
        self.dismiss(event.node.data)

    def _label(self, message: Message) -> Text:
        mark = "● " if message.id in self._shown_ids else "  "
        who = "you  " if message.role == "user" else str(message.record.get("target") or message.role) + "  "
        line = " ".join(shown(message.text[: 4 * LABEL_CHARS]).split())[:LABEL_CHARS]
        return Text.assemble((mark, "bold"), (shown(who), "dim"), line or "…", no_wrap=True)
