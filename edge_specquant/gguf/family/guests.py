"""Drafts from elsewhere: a sibling of another family ("FAMILY:SIBLING") or a GGUF file, for a target of this one.

Takes a name, gives the file behind it after its own family's proof. Any model may draft whose token ids mean what the
target's mean: ids are compared, a longer (padded) vocabulary is fine. Knows nothing of speed.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import zip_longest
from pathlib import Path

from ...errors import EdgeSpecQuantError, UsageError, VocabularyError
from ..format.header import ModelCard, read_card, vocabulary_tokens
from .family import Family, Variant, family_names

_PADDING = ("[pad", "<pad", "<unused", "<|unused", "[unused", "<reserved", "<|reserved", "<|dummy", "<|extra")


@dataclass(frozen=True)
class Guest:
    """name: what it is called in drafts, the same for every way to write it; variant: of `family`, its own."""

    name: str
    family: Family
    variant: Variant

    def path(self) -> Path:
        """The file, proven as its family proves it. Raises FamilyError, VocabularyError."""
        return self.family.path(self.variant.name)


@dataclass(frozen=True)
class Pair:
    """A guest that can draft for a target, smallest first in lists."""

    guest: Guest
    card: ModelCard


def is_guest(name: str) -> bool:
    """Whether a name points out of the family."""
    return ":" in name or name.lower().endswith(".gguf")


def guest(name: str) -> Guest:
    """The model behind "FAMILY:SIBLING" or "PATH.gguf". Raises UsageError, FamilyError, GGUFError."""
    if name.lower().endswith(".gguf"):
        opened = _opened(str(Path(name).expanduser().resolve()))
        variant = next(iter(opened.variants.values()))
        return Guest(str(variant.path), opened, variant)
    family_name, _, sibling = name.rpartition(":")
    if not family_name or not sibling:
        raise UsageError(f"'{name}' names no draft; give FAMILY:SIBLING or the path of a GGUF file")
    opened = _opened(family_name)
    variant = opened.variant(sibling)
    return Guest(f"{opened.name}:{variant.name}", opened, variant)


def any_variant(family: Family, name: str) -> Variant:
    """A sibling of this family, or a guest under its own name. Raises FamilyError, UsageError, GGUFError."""
    if not is_guest(name):
        return family.variant(name)
    found = guest(name)
    return replace(found.variant, name=found.name)


def proven_path(family: Family, name: str) -> Path:
    """The file of a sibling or guest, after the proof of the family it is from."""
    return guest(name).path() if is_guest(name) else family.path(name)


def require_same_ids(target: ModelCard, draft: ModelCard) -> None:
    """Raises VocabularyError with the first id that means another text.

    A longer vocabulary of the draft is fine, since nothing beyond the target's is ever proposed; a shorter one where
    what it lacks is padding, which no text holds.
    """
    if target.vocabulary_sha256 == draft.vocabulary_sha256:
        return
    where = f"{draft.path.name} cannot draft for {target.path.name}"
    for index, (ours, theirs) in enumerate(zip_longest(vocabulary_tokens(target), vocabulary_tokens(draft))):
        if ours is None:
            return
        if theirs is None:
            if not ours.lower().startswith(_PADDING):
                raise VocabularyError(f"{where}: it has no token {index}, which is {ours!r} in the target")
        elif ours != theirs:
            raise VocabularyError(f"{where}: token {index} is {ours!r} in the target and {theirs!r} in the draft")


def pairs_for(target: ModelCard, family: Family) -> Iterator[Pair]:
    """Every smaller model of the other families here whose ids mean the same; headers only."""
    for name in family_names():
        if name == family.name:
            continue
        try:
            opened = _opened(name)
            for variant in opened.variants.values():
                card = read_card(variant.path)
                if card.n_tensor_bytes < target.n_tensor_bytes and _fits(target, card):
                    yield Pair(Guest(f"{opened.name}:{variant.name}", opened, variant), card)
        except EdgeSpecQuantError:
            continue  # a broken family is the business of `models verify`


def _fits(target: ModelCard, draft: ModelCard) -> bool:
    try:
        require_same_ids(target, draft)
    except VocabularyError:
        return False
    return True


@functools.lru_cache(maxsize=32)
def _opened(name_or_path: str) -> Family:
    return Family.open(name_or_path)
