"""Any sequence of sends, edits, regenerations, switches, deletions and undos: the tree is what a model says it is.

The model keeps, for each parent, its children in the order they were last shown; it shares nothing with the store.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from hypothesis import given, settings
from hypothesis import strategies as st

from edge_specquant.store import Deletion, Store
from edge_specquant.store.formats.markdown import branch_on_show, from_markdown, to_markdown
from edge_specquant.store.formats.portable import from_json_text, to_json_text

ACTIONS = ("send", "send", "reply", "edit", "regenerate", "show", "delete", "undo")
steps = st.lists(
    st.tuples(st.sampled_from(ACTIONS), st.integers(0, 1 << 16), st.text(max_size=8)), min_size=5, max_size=40
)


@dataclass
class Model:
    """One conversation; nodes are message ids, None is above the first ones."""

    parents: dict[int, int | None] = field(default_factory=dict)
    texts: dict[int, str] = field(default_factory=dict)
    shown: dict[int | None, list[int]] = field(default_factory=dict)
    hidden: list[set[int]] = field(default_factory=list)
    leaf: int | None = None

    def visible(self) -> list[int]:
        return [node for node in self.parents if not any(node in group for group in self.hidden)]

    def path(self, node: int | None) -> list[int]:
        return [] if node is None else [*self.path(self.parents[node]), node]

    def put_on_show(self, node: int | None) -> None:
        for step in self.path(node):
            order = self.shown.setdefault(self.parents[step], [])
            if step in order:
                order.remove(step)
            order.append(step)
        self.leaf = node

    def deepest(self, node: int | None) -> int | None:
        visible = set(self.visible())
        while children := [child for child in self.shown.get(node, []) if child in visible]:
            node = children[-1]
        return node

    def insert(self, node: int, parent: int | None, text: str) -> None:
        self.parents[node], self.texts[node] = parent, text
        self.put_on_show(node)

    def delete(self, node: int) -> int | None:
        """Gives the leaf that was on show, if it went."""
        before = self.leaf
        self.hidden.append({other for other in self.visible() if node in self.path(other)})
        if before in self.hidden[-1]:
            self.put_on_show(self.deepest(self.parents[node]))
            return before
        return None


def run(store: Store, conversation_id: int, model: Model, script: list[tuple[str, int, str]]) -> None:
    undoable: list[tuple[Deletion, int | None]] = []
    for action, number, text in script:
        nodes = model.visible()
        node = nodes[number % len(nodes)] if nodes else None
        if action == "send" or (node is None and action != "undo"):
            parent = model.leaf
            model.insert(store.add(conversation_id, "user", text).id, parent, text)
        elif action == "reply":
            with store.begin(conversation_id, after=node) as writer:
                writer.append(text)
            model.insert(writer.message_id, node, text)
        elif action == "edit":
            model.insert(store.add_beside(node, text).id, model.parents[node], text)
        elif action == "regenerate":
            with store.begin_beside(node) as writer:
                writer.append(text[:1])
                writer.flush()
                writer.append(text[1:])
            model.insert(writer.message_id, model.parents[node], text)
        elif action == "show":
            store.show(node)
            model.put_on_show(model.deepest(node))
        elif action == "delete":
            undoable.append((store.delete_message(node), model.delete(node)))
        elif undoable:
            deletion, before = undoable.pop()
            store.undo(deletion)
            model.hidden.pop()
            model.put_on_show(model.deepest(before or model.leaf))
        check(store, conversation_id, model)


def check(store: Store, conversation_id: int, model: Model) -> None:
    path = store.messages(conversation_id)
    assert [message.id for message in path] == model.path(model.leaf)
    assert all(message.text == model.texts[message.id] for message in path)
    everything = store.all_messages(conversation_id)
    assert {message.id: message.parent_id for message in everything} == {n: model.parents[n] for n in model.visible()}
    assert store.conversation(conversation_id).n_messages == len(everything)


@given(steps, st.text(max_size=5))
@settings(max_examples=150, deadline=None)
def test_the_tree_is_what_the_model_says_and_survives_export(script: list[tuple[str, int, str]], title: str) -> None:
    with Store.in_memory() as store, Store.in_memory() as other:
        conversation = store.create(title, system=title, preset={"target": title})
        run(store, conversation.id, Model(), script)
        copy = store.copy(conversation.id)
        (read,) = from_json_text(to_json_text([copy]))
        assert read == copy
        (added,) = other.add_copies([read])
        assert other.copy(added.id) == copy
        shown = branch_on_show(copy)
        back = from_markdown(to_markdown(copy))
        assert (back.title, back.system) == (copy.title, copy.system)
        assert [(m.role, m.text, m.status, m.created_at) for m in back.messages] == [
            (m.role, m.text, m.status, m.created_at) for m in shown
        ]
        other.add_copies([back])
        everything = [message.text for message in store.messages(conversation.id)]
        assert [message.text for message in other.messages(other.conversations()[0].id)] == everything
