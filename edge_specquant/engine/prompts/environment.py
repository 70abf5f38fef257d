"""Jinja as Hugging Face sets it up for chat templates, sandboxed, with the template's own text marked as its own.

Takes a source, gives a compiled template that renders to a `Text`. Mirrors `_compile_jinja_template` of
transformers/utils/chat_template_utils.py: generation tags, loop controls, tojson, raise_exception, strftime_now.
"""

from __future__ import annotations

import datetime
import json
from collections.abc import Iterable
from typing import Any

import jinja2
from jinja2 import nodes
from jinja2.compiler import CodeGenerator, Frame, optimizeconst
from jinja2.exceptions import SecurityError
from jinja2.ext import Extension
from jinja2.filters import make_attrgetter
from jinja2.parser import Parser
from jinja2.sandbox import ImmutableSandboxedEnvironment
from jinja2.utils import Namespace

from .origin import LOST, Text, as_text, joined, marked, origins_in


class _Generator(CodeGenerator):
    """Writes every constant text of the template as one of its own origin."""

    def _output_const_repr(self, group: Iterable[Any]) -> str:
        return f"environment.own({super()._output_const_repr(group)})"

    def visit_Const(self, node: nodes.Const, frame: Frame) -> None:
        value = node.as_const(frame.eval_ctx)
        if isinstance(value, (str, list, tuple, dict)):
            self.write(f"environment.own({value!r})")
        else:
            super().visit_Const(node, frame)

    def visit_TemplateData(self, node: nodes.TemplateData, frame: Frame) -> None:
        del frame
        self.write(f"environment.own({node.data!r})")

    @optimizeconst
    def visit_Concat(self, node: nodes.Concat, frame: Frame) -> None:
        self.write("environment.concat((")
        for child in node.nodes:
            self.visit(child, frame)
            self.write(", ")
        self.write("))")


class _Generation(Extension):
    """{% generation %} ... {% endgeneration %}: marks replies for training; here only the scope remains."""

    tags = {"generation"}  # noqa: RUF012 - jinja2 reads a plain set

    def parse(self, parser: Parser) -> nodes.Node:
        line = next(parser.stream).lineno
        return nodes.Scope(parser.parse_statements(("name:endgeneration",), drop_needle=True)).set_lineno(line)


class _Dict:
    """`dict` of the templates, without what else hangs on the type."""

    def __call__(self, *args: Any, **kwargs: Any) -> dict[Any, Any]:
        return dict(*args, **kwargs)


class _Namespace(Namespace):
    """`namespace` of the templates. Raises SecurityError for names that lead into Python."""

    def __init__(*args: Any, **kwargs: Any) -> None:
        given = dict(*args[1:], **kwargs)
        for name in given:
            _check_name(name)
        Namespace.__init__(args[0], given)

    def __setitem__(self, name: str, value: Any) -> None:
        _check_name(name)
        super().__setitem__(name, value)


class ChatEnvironment(ImmutableSandboxedEnvironment):
    """Compiles chat templates. Raises jinja2.TemplateError as Jinja does."""

    code_generator_class = _Generator
    concat = staticmethod(joined)

    def __init__(self) -> None:
        super().__init__(trim_blocks=True, lstrip_blocks=True, extensions=[_Generation, "jinja2.ext.loopcontrols"])
        self.filters |= {"tojson": _tojson, "join": _join, "title": _title, "indent": _indent, "safe": _same}
        self.globals |= {"raise_exception": _raise_exception, "strftime_now": _strftime_now}
        self.globals |= {"dict": _Dict(), "namespace": _Namespace}

    @staticmethod
    def own(value: Any) -> Any:
        """A constant of the template."""
        return marked(value, None)


def _tojson(
    value: Any,
    ensure_ascii: bool = False,
    indent: int | None = None,
    separators: tuple[str, str] | None = None,
    sort_keys: bool = False,
) -> Text:
    """Jinja's own escapes HTML, which is wrong in a prompt."""
    written = json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)
    heads = {None if origin is None else origin.partition(".")[0] for origin in origins_in(value)}
    return Text(written, ((len(written), heads.pop() if len(heads) == 1 else LOST),))


@jinja2.pass_environment
def _join(
    environment: jinja2.Environment, value: Iterable[Any], d: str = "", attribute: str | int | None = None
) -> Text:
    if attribute is not None:
        value = map(make_attrgetter(environment, attribute), value)
    return as_text(d).join([str(part) for part in value])


def _title(value: Any) -> Text:
    """Jinja's rule: words begin after white space and after the brackets and dashes of its own list."""
    text = as_text(str(value))
    plain = jinja2.filters.do_title(str.__str__(text))
    return text._respelled(plain)


def _indent(value: Any, width: int | str = 4, first: bool = False, blank: bool = False) -> Text:
    """As do_indent of jinja2/filters.py."""
    step = as_text(width) if isinstance(width, str) else marked(" " * width, None)
    lines = (as_text(str(value)) + "\n").splitlines()
    indented = [step + line if line or blank else line for line in lines[1:]]
    head = step + lines[0] if first else lines[0]
    line_end: Text = marked("\n", None)
    return line_end.join([head, *indented])


def _same(value: Any) -> Any:
    """Nothing is escaped here, so nothing needs to be kept from it."""
    return value


def _check_name(name: str) -> None:
    if name.startswith("_"):
        raise SecurityError(f"a namespace has no attribute '{name}'")


def _raise_exception(message: str) -> None:
    raise jinja2.TemplateError(message)


def _strftime_now(form: str) -> str:
    return datetime.datetime.now().strftime(form)
