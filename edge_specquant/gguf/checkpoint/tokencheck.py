"""Do the engine and the checkpoint's own tokenizer agree? Tried out on a difficult text after every conversion.

Takes the checkpoint folder and the GGUF made of it, gives a note when their token ids differ. Nothing is repaired here.
"""

from __future__ import annotations

from pathlib import Path

from ...native.opening import open_model
from ..quantize.collect import shipped_text
from .pretokenizer import CHECK_TEXT
from .tokenizer import reference_ids


def tokenizer_note(folder: Path, gguf_path: Path) -> str | None:
    """None when the ids are the same; else one sentence with the first difference."""
    text = f"{CHECK_TEXT}\n\n{shipped_text('heldout')}"
    expected = reference_ids(folder, text)
    with open_model(gguf_path, vocab_only=True) as model:
        found = model.vocab.tokenize(text, parse_special=True)
    if found == expected:
        return None
    place = next((i for i, pair in enumerate(zip(found, expected, strict=False)) if pair[0] != pair[1]), len(expected))
    return (
        f"the engine splits a test text otherwise than the checkpoint's tokenizer: {len(found)} tokens against "
        f"{len(expected)}, the first difference at token {place}; expect slightly worse text"
    )
