"""The process's own text streams, made to take any text: what their encoding lacks is written as '?', and that is told.

A pipe on Windows speaks cp1252, an old terminal cp437. Knows nothing of what is written.
"""

from __future__ import annotations

import codecs
import contextlib
import io
import sys
from collections.abc import Iterator

_MARK = "edge_specquant.mark"  # our error handler
_ASCII = "edge_specquant_ascii"  # ASCII under a name of ours: click takes its own name for a mistake and writes UTF-8
_MENDED_ERRORS = ("strict", "surrogateescape")  # any other handler was chosen by somebody
_lost = False


@contextlib.contextmanager
def any_text() -> Iterator[None]:
    """While it holds, standard output takes any text and standard input gives some for any bytes.

    Standard error does so by itself. At the end one line there tells when characters could not be written.
    """
    global _lost
    _lost = False
    _mend(sys.stdout, _MARK)
    _mend(sys.stderr, "backslashreplace")
    _mend(sys.stdin, "replace")
    encoding = str(getattr(sys.stdout, "encoding", "")).replace(_ASCII, "ascii")
    try:
        yield
    finally:
        if _lost:
            advice = "set PYTHONIOENCODING=utf-8 to have them"
            print(f"note: characters that {encoding} lacks were written as '?'; {advice}", file=sys.stderr)


def _mend(stream: object, errors: str) -> None:
    if not isinstance(stream, io.TextIOWrapper):
        return
    is_ascii = codecs.lookup(stream.encoding).name == "ascii"
    if stream.errors in _MENDED_ERRORS:
        stream.reconfigure(errors=errors)
    if is_ascii and stream.writable():
        stream.reconfigure(encoding=_ASCII, errors=stream.errors)


def _marked(error: UnicodeError) -> tuple[str, int]:
    global _lost
    assert isinstance(error, UnicodeEncodeError)
    _lost = True
    return "?" * (error.end - error.start), error.end


def _own_ascii(name: str) -> codecs.CodecInfo | None:
    if name != _ASCII:
        return None
    known = codecs.lookup("ascii")
    return codecs.CodecInfo(
        known.encode,
        known.decode,
        known.streamreader,
        known.streamwriter,
        known.incrementalencoder,
        known.incrementaldecoder,
        name=_ASCII,
    )


codecs.register_error(_MARK, _marked)
codecs.register(_own_ascii)
