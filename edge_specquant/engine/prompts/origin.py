"""A text that knows of each character whether the chat template wrote it or a caller: origins are carried, not guessed.

A str subclass whose methods give the same (as markupsafe's Markup does), so that a template may cut, join and format
as it likes. What an operation cannot place counts as the caller's. Knows no template and no vocabulary.
"""

from __future__ import annotations

import re
import string
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import groupby
from typing import Any, SupportsIndex

Origin = str | None
"""Where characters come from: None is the template itself, else whose they are, such as "messages[2].content"."""

Runs = tuple[tuple[int, Origin], ...]
"""Neighbouring characters of one origin: (how many, origin), from the left."""

LOST = "caller"
"""The origin of what an operation could not place: nobody knows whose it is, so it is no part of the template."""

_PERCENT = re.compile(
    r"%(?:\((?P<key>[^)]*)\))?(?P<shape>[#0\- +]*(?:\*|\d+)?(?:\.(?:\*|\d+))?)[hlL]?(?P<kind>[a-zA-Z%])"
)
_BRACES = re.compile(r"\{\{|\}\}|\{(?P<name>[^{}:!]*)(?P<shape>[^{}]*)\}")


class Text(str):
    """A text and its runs. Without runs everything in it is of lost origin."""

    __slots__ = ("_runs",)
    _runs: Runs

    def __new__(cls, text: str = "", runs: Runs | None = None) -> Text:
        made = str.__new__(cls, str.__str__(text))
        made._runs = runs if runs is not None else ((len(made), LOST),) if made else ()
        return made

    # -- cut: every part is a slice ---------------------------------------------------------------------------------

    def __getitem__(self, key: SupportsIndex | slice) -> Text:
        plain = str.__getitem__(self, key)
        if len(self._runs) <= 1:
            return Text(plain, ((len(plain), self._runs[0][1]),) if plain else ())
        if isinstance(key, slice) and key.step in (None, 1):
            start, stop, _ = key.indices(len(self))
            return Text(plain, _cut(self._runs, start, stop))
        each = [origin for n, origin in self._runs for _ in range(n)]
        chosen = each[key] if isinstance(key, slice) else [each[key]]
        return Text(plain, _merged((1, origin) for origin in chosen))

    def __iter__(self) -> Iterator[str]:
        at = 0
        for n, origin in self._runs:
            for place in range(at, at + n):
                yield Text(str.__getitem__(self, place), ((1, origin),))
            at += n

    def strip(self, chars: str | None = None, /) -> Text:
        return self.lstrip(chars).rstrip(chars)

    def lstrip(self, chars: str | None = None, /) -> Text:
        return self[len(self) - len(str.lstrip(self, chars)) :]

    def rstrip(self, chars: str | None = None, /) -> Text:
        return self[: len(str.rstrip(self, chars))]

    def removeprefix(self, prefix: str, /) -> Text:
        return self[len(prefix) :] if prefix and self.startswith(prefix) else self

    def removesuffix(self, suffix: str, /) -> Text:
        return self[: -len(suffix)] if suffix and self.endswith(suffix) else self

    def split(self, sep: str | None = None, maxsplit: SupportsIndex = -1) -> list[str]:
        return self._parts(str.split(self, sep, maxsplit), None if sep is None else len(sep))

    def rsplit(self, sep: str | None = None, maxsplit: SupportsIndex = -1) -> list[str]:
        return self._parts(str.rsplit(self, sep, maxsplit), None if sep is None else len(sep))

    def partition(self, sep: str, /) -> tuple[str, str, str]:
        before, found, after = self._parts(str.partition(self, sep), 0)
        return before, found, after

    def rpartition(self, sep: str, /) -> tuple[str, str, str]:
        before, found, after = self._parts(str.rpartition(self, sep), 0)
        return before, found, after

    def splitlines(self, keepends: bool = False) -> list[str]:
        lines = self._parts(str.splitlines(self, True), 0)
        if keepends:
            return lines
        return [line[: len(bare)] for line, bare in zip(lines, str.splitlines(self), strict=True)]

    def _parts(self, parts: Iterable[str], gap: int | None) -> list[str]:
        """Parts in order, `gap` characters apart; None: only white space stands between, and no part begins with it."""
        found: list[str] = []
        at = 0
        for part in parts:
            start = self.find(part, at) if gap is None else at
            at = start + len(part) + (gap or 0)
            found.append(self[start : start + len(part)])
        return found

    # -- join -------------------------------------------------------------------------------------------------------

    def __add__(self, other: str) -> Text:
        return joined((self, other)) if isinstance(other, str) else NotImplemented

    def __radd__(self, other: str) -> Text:
        return joined((other, self)) if isinstance(other, str) else NotImplemented

    def __mul__(self, n: SupportsIndex) -> Text:
        plain = str.__mul__(self, n)
        if len(self._runs) > 1:
            return Text(plain, _merged(self._runs * int(n)))
        return Text(plain, ((len(plain), self._runs[0][1]),) if plain else ())

    __rmul__ = __mul__

    def join(self, parts: Iterable[str], /) -> Text:
        between: list[str] = []
        for part in parts:
            if not isinstance(part, str):
                raise TypeError(f"join needs texts, not {type(part).__name__}")
            between += [self, part] if between else [part]
        return joined(between)

    def replace(self, old: str, new: str, count: SupportsIndex = -1) -> Text:
        if not old:
            return Text(str.replace(self, old, new, count))
        return as_text(new).join(self.split(old, count))

    def ljust(self, width: SupportsIndex, fill: str = " ", /) -> Text:
        return self + as_text(fill) * (int(width) - len(self))

    def rjust(self, width: SupportsIndex, fill: str = " ", /) -> Text:
        return as_text(fill) * (int(width) - len(self)) + self

    def center(self, width: SupportsIndex, fill: str = " ", /) -> Text:
        return self._checked(
            self.ljust(len(self) + (int(width) - len(self)) // 2, fill).rjust(width, fill),
            str.center(self, width, fill),
        )

    # -- other letters in the same places ---------------------------------------------------------------------------

    def upper(self) -> Text:
        return self._respelled(str.upper(self))

    def lower(self) -> Text:
        return self._respelled(str.lower(self))

    def title(self) -> Text:
        return self._respelled(str.title(self))

    def capitalize(self) -> Text:
        return self._respelled(str.capitalize(self))

    def swapcase(self) -> Text:
        return self._respelled(str.swapcase(self))

    def casefold(self) -> Text:
        return self._respelled(str.casefold(self))

    def translate(self, table: Any, /) -> Text:
        return self._respelled(str.translate(self, table), in_place=False)

    def expandtabs(self, tabsize: SupportsIndex = 8) -> Text:
        return self._respelled(str.expandtabs(self, tabsize), in_place=False)

    def zfill(self, width: SupportsIndex, /) -> Text:
        return self._respelled(str.zfill(self, width), in_place=False)

    def _respelled(self, plain: str, *, in_place: bool = True) -> Text:
        """in_place: no letter ever becomes fewer, so an equal length means letter by letter."""
        if len(self._runs) <= 1:
            return Text(plain, ((len(plain), self._runs[0][1]),) if plain and self._runs else None)
        return Text(plain, self._runs if in_place and len(plain) == len(self) else None)

    # -- format -----------------------------------------------------------------------------------------------------

    def __mod__(self, args: Any) -> Text:
        plain = str.__mod__(self, args)
        values = iter(args if isinstance(args, tuple) else (args,))

        def value(found: re.Match[str]) -> str:
            if found["kind"] == "%":
                return as_text("%")
            given = args[found["key"]] if found["key"] is not None else next(values, "")
            return (
                str(given)
                if found["kind"] == "s" and not found["shape"]
                else f"%{found['shape']}{found['kind']}" % (given,)
            )

        return self._checked(self._filled(_PERCENT, value), plain)

    def __rmod__(self, other: str) -> Text:
        return as_text(other) % self

    @property
    def format(self) -> Callable[..., Text]:
        """As str.format, without attributes: the sandbox has no say in here."""
        return self._formatted

    def _formatted(self, *args: Any, **kwargs: Any) -> Text:
        formatter = _Formatter()
        plain = formatter.vformat(str.__str__(self), args, kwargs)
        n_unnamed = iter(range(len(args)))

        def value(found: re.Match[str]) -> str:
            if found["name"] is None:
                return self[found.start() : found.start() + 1]
            name = found["name"] or str(next(n_unnamed))
            if found["shape"]:
                return formatter.vformat(f"{{{name}{found['shape']}}}", args, kwargs)
            return str(formatter.get_field(name, args, kwargs)[0])

        return self._checked(self._filled(_BRACES, value), plain)

    def _filled(self, pattern: re.Pattern[str], value: Callable[[re.Match[str]], str]) -> Text:
        parts: list[str] = []
        at = 0
        for found in pattern.finditer(self):
            parts += [self[at : found.start()], value(found)]
            at = found.end()
        return joined([*parts, self[at:]])

    @staticmethod
    def _checked(made: Text, plain: str) -> Text:
        """What was put together, if it is what Python makes of it; else Python's text, its origins lost."""
        return made if str.__eq__(made, plain) else Text(plain)

    def __str__(self) -> str:
        return self  # str() keeps the origins; Jinja calls it on everything that it writes

    __hash__ = str.__hash__


class _Formatter(string.Formatter):
    """Names and numbers only: "{0.__class__}" would lead out of the sandbox."""

    def get_field(self, field_name: str, args: Any, kwargs: Any) -> Any:
        if not re.fullmatch(r"\w+", field_name):
            raise ValueError(f"format takes plain names, not '{field_name}'")
        return super().get_field(field_name, args, kwargs)


def runs_of(text: str) -> Runs:
    """The runs of a text; a plain str is one run of lost origin."""
    return text._runs if isinstance(text, Text) else ((len(text), LOST),) if text else ()


def as_text(text: str) -> Text:
    """The text itself, or a plain str with its origin lost."""
    return text if isinstance(text, Text) else Text(text)


def joined(parts: Iterable[Any]) -> Text:
    """All parts in a row, each with its runs; what is no str is written as one."""
    texts = [part if isinstance(part, str) else str(part) for part in parts]
    return Text("".join(texts), _merged(run for text in texts for run in runs_of(text)))


def marked(value: Any, origin: Origin) -> Any:
    """A JSON-like value whose every text, keys too, has this origin; below a caller's, places are named."""
    if isinstance(value, str):
        return value if isinstance(value, Text) else Text(value, ((len(value), origin),) if value else ())
    if isinstance(value, Mapping):
        return {
            marked(key, origin): marked(child, None if origin is None else f"{origin}.{key}")
            for key, child in value.items()
        }
    if isinstance(value, (list, tuple)):
        children = (marked(child, None if origin is None else f"{origin}[{i}]") for i, child in enumerate(value))
        return tuple(children) if isinstance(value, tuple) else list(children)
    if value is None or isinstance(value, (bool, int, float)):
        return value
    return marked(str(value), origin)  # whatever else it can do, a template must not make it


def origins_in(value: Any) -> set[Origin]:
    """The origins of all texts in a JSON-like value."""
    if isinstance(value, str):
        return {origin for _, origin in runs_of(value)}
    if isinstance(value, Mapping):
        return {origin for pair in value.items() for each in pair for origin in origins_in(each)}
    if isinstance(value, (list, tuple)):
        return {origin for child in value for origin in origins_in(child)}
    return set()


def _cut(runs: Runs, start: int, stop: int) -> Runs:
    found: list[tuple[int, Origin]] = []
    at = 0
    for n, origin in runs:
        inside = min(at + n, stop) - max(at, start)
        if inside > 0:
            found.append((inside, origin))
        at += n
    return tuple(found)


def _merged(runs: Iterable[tuple[int, Origin]]) -> Runs:
    return tuple((sum(n for n, _ in same), origin) for origin, same in groupby(runs, key=lambda run: run[1]))
