"""Certificates, kept per engine build, processor and file, so that `--strict` measures once.

Takes a context and the text to certify on; gives a Certificate from the cache folder or measured now.
"""

from __future__ import annotations

import json
from pathlib import Path

from ...errors import FileError
from ...gguf.format.atomic import write_text_whole
from ...native.protocol import Context, Vocab
from .certificate import Certificate, certify

N_TOKENS = 96
_TEXT = (
    "The river rose in the night, and by morning the lower fields were a lake. def total(items): return sum(i.price "
    "for i in items if i.price > 0)  # 3.14159, 2.71828 — naïve café, 東京は夜, Привет мир. She asked him twice why "
    "the bridge had been left open; he answered, slowly, that nobody had thought of it. 17 × 23 = 391. "
)


def certificate(context: Context, vocab: Vocab, kept_in: Path | None) -> Certificate:
    """Read from `kept_in`, or measured and written there; a folder that cannot be written costs a new measurement."""
    known = _read(kept_in)
    if known is not None:
        return known
    tokens = (vocab.tokenize(_TEXT) * N_TOKENS)[: min(N_TOKENS, context.n_ctx - context.max_rows)]
    made = certify(context, tokens)
    if kept_in is not None:
        try:
            kept_in.parent.mkdir(parents=True, exist_ok=True)
            write_text_whole(kept_in, json.dumps(made.as_dict()))
        except (FileError, OSError):
            return made
    return made


def _read(path: Path | None) -> Certificate | None:
    if path is None or not path.is_file():
        return None
    try:
        return Certificate.from_dict(json.loads(path.read_text(encoding="utf-8")))
    except (OSError, ValueError, KeyError, TypeError):
        return None  # measured again
