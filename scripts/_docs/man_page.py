"""The commands as one man page, section 1 (roff)."""

from __future__ import annotations

from edge_specquant import __version__

from .commands import PROGRAM, Verb, verbs

_FILES = (
    ("EDGE_SPECQUANT_HOME", "Folder for families, conversations and settings, instead of the platform's own."),
    ("EDGE_SPECQUANT_SECTION_KEY", "Value of a setting, such as EDGE_SPECQUANT_CHAT_TEMPERATURE."),
    ("NO_COLOR", "The plain chat, without colours."),
)
_EXITS = (("0", "done"), ("1", "failed, with a sentence"), ("2", "bad usage"), ("130", "interrupted"))


def man_page() -> str:
    """The page of the program with all its verbs."""
    program, *others = verbs()
    title = f'.TH {PROGRAM.upper()} 1 "" "{PROGRAM} {__version__}" "User Commands"'
    parts = [title, ".SH NAME", f"{_text(PROGRAM)} \\- {_text(program.paragraphs[0].rstrip('.'))}"]
    parts += [".SH SYNOPSIS", f".B {_text(program.usage)}", ".SH DESCRIPTION", *_body(program), ".SH COMMANDS"]
    for verb in others:
        heading = _text(verb.name.removeprefix(PROGRAM + " "))
        parts += [f'.SS "{heading}"', ".PP", f".B {_text(verb.usage)}", *_body(verb)]
    parts += [".SH ENVIRONMENT", *_items(_FILES), ".SH EXIT STATUS", *_items(_EXITS)]
    return "\n".join(parts) + "\n"


def _body(verb: Verb) -> list[str]:
    paragraphs = [line for paragraph in verb.paragraphs for line in (".PP", _text(paragraph))]
    return paragraphs + _items(verb.options)


def _items(pairs: object) -> list[str]:
    assert isinstance(pairs, (list, tuple))
    return [line for name, meaning in pairs for line in (".TP", f".B {_text(name)}", _text(meaning))]


def _text(text: str) -> str:
    """roff reads backslashes, dashes, and dots or quotes at the start of a line."""
    escaped = text.replace("\\", "\\e").replace("-", "\\-")
    return "\\&" + escaped if escaped[:1] in (".", "'") else escaped
