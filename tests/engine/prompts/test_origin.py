"""The law of origins: every operation gives what Python gives, and each character stays its writer's."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edge_specquant.engine.prompts.origin import LOST, Text, joined, marked, runs_of

OURS, THEIRS = "abß \n<|%", "XYZ7{}\t>"
"""Letters that only the template writes, and letters that only a caller writes."""

pieces = st.lists(
    st.one_of(
        st.text(OURS, max_size=4).map(lambda s: marked(s, None)),
        st.text(THEIRS, max_size=4).map(lambda s: marked(s, "x")),
    ),
    max_size=6,
)
texts = pieces.map(joined)

OPERATIONS: dict[str, Callable[[Any, Any], Any]] = {
    "add": lambda a, b: a + b,
    "add to a plain text": lambda a, b: str.__str__(a) + b,
    "times": lambda a, b: a * 3,
    "slice": lambda a, b: a[1:-2],
    "backwards": lambda a, b: a[::-1],
    "steps": lambda a, b: a[::2],
    "letters": lambda a, b: list(a),
    "strip": lambda a, b: a.strip(),
    "strip letters": lambda a, b: a.strip("aX "),
    "lstrip": lambda a, b: a.lstrip(),
    "rstrip": lambda a, b: a.rstrip("\n"),
    "split": lambda a, b: a.split(),
    "split once": lambda a, b: a.split(None, 1),
    "rsplit once": lambda a, b: a.rsplit(None, 1),
    "split at": lambda a, b: a.split("a"),
    "rsplit at": lambda a, b: a.rsplit("X", 1),
    "partition": lambda a, b: a.partition("<"),
    "rpartition": lambda a, b: a.rpartition("Y"),
    "lines": lambda a, b: a.splitlines(),
    "lines with ends": lambda a, b: a.splitlines(True),
    "replace": lambda a, b: a.replace("a", b),
    "replace one": lambda a, b: a.replace("X", b, 1),
    "join": lambda a, b: a.join([b, a, b]),
    "removeprefix": lambda a, b: a.removeprefix("a"),
    "removesuffix": lambda a, b: a.removesuffix("X"),
    "ljust": lambda a, b: a.ljust(9),
    "center": lambda a, b: a.center(11),
    "rjust": lambda a, b: a.rjust(9),
}
RESPELLING: dict[str, Callable[[Any], Any]] = {
    name: lambda a, name=name: getattr(a, name)()
    for name in ("upper", "lower", "title", "capitalize", "swapcase", "casefold", "expandtabs")
}


def plainly(value: Any) -> Any:
    if isinstance(value, (list, tuple)):
        return type(value)(plainly(each) for each in value)
    return str.__str__(value)


def check(value: Any) -> None:
    """Every letter's origin is its alphabet's; of lost origin may be what was never marked."""
    if isinstance(value, (list, tuple)):
        for each in value:
            check(each)
        return
    assert isinstance(value, Text)
    assert sum(n for n, _ in runs_of(value)) == len(value)
    at, plain = 0, str.__str__(value)
    for n, origin in runs_of(value):
        stretch, at = plain[at : at + n], at + n
        assert origin == LOST or set(stretch) <= set(OURS if origin is None else THEIRS), (value, runs_of(value))


@pytest.mark.parametrize("name", OPERATIONS)
@given(a=texts, b=texts)
def test_operations_keep_origins(name: str, a: Text, b: Text) -> None:
    operation = OPERATIONS[name]
    result = operation(a, b)
    assert plainly(result) == operation(plainly(a), plainly(b))
    check(result)


@pytest.mark.parametrize("name", RESPELLING)
@given(a=texts)
def test_other_spellings_never_become_the_templates(name: str, a: Text) -> None:
    result = RESPELLING[name](a)
    assert plainly(result) == RESPELLING[name](plainly(a))
    if result and None in {origin for _, origin in runs_of(result)}:
        assert None in {origin for _, origin in runs_of(a)}
        at = 0
        for n, origin in runs_of(result):
            assert origin is not None or not set(plainly(result)[at : at + n]) & set("XYZ7{}xyz")
            at += n


@given(a=texts, b=texts)
def test_formatting_keeps_origins(a: Text, b: Text) -> None:
    for form in ("<%s|%s>", "a%sb%%", "%(k)s", "{}<{}", "{1}{0}{{}}", "{k}|{k!s}"):
        own = marked(form, None)
        args: Any = {"k": a} if "k" in form else (a, b)[: form.count("%s") or 2]
        percent = "%" in form
        result = own % args if percent else own.format(*([] if "k" in form else args), **(args if "k" in form else {}))
        plain = plainly(args) if isinstance(args, tuple) else {"k": plainly(a)}
        expected = (
            form % plain if percent else form.format(*([] if "k" in form else plain), **(plain if "k" in form else {}))
        )
        assert plainly(result) == expected
        forged = [p for p in "XYZ7" if p in "".join(_own(result))]
        assert not forged


def _own(text: Text) -> list[str]:
    found, at = [], 0
    for n, origin in runs_of(text):
        found += [plainly(text)[at : at + n]] if origin is None else []
        at += n
    return found


@given(a=texts)
def test_a_callers_own_form_is_a_callers(a: Text) -> None:
    theirs = marked("X%s{}Y", "x")
    assert not set("".join(_own(theirs % (a,)))) & set("XY{}s7Z>")


def test_what_cannot_be_placed_is_the_callers() -> None:
    assert runs_of("plain") == ((5, LOST),)
    assert runs_of(Text("{}").format("a")) == ((1, LOST),)
    with pytest.raises(ValueError, match="plain names"):
        marked("{0.__class__}", None).format("a")


def test_a_value_is_marked_to_its_last_key() -> None:
    value = marked({"k": ["v", {"w": ("x", 1, None, True, 2.5)}]}, "tools")
    assert {origin for _, origin in runs_of(next(iter(value)))} == {"tools"}
    assert runs_of(value["k"][1]["w"][0]) == ((1, "tools.k[1].w[0]"),)
    assert value["k"][1]["w"][1:] == (1, None, True, 2.5)
    assert runs_of(marked({"when": object}, "x")["when"])[0][1] == "x.when"
