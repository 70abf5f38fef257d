"""The vocabulary of a loaded model: text to ids, ids to bytes."""

from __future__ import annotations

import ctypes
import functools
from typing import Any

from .library.library import engine
from .protocol import Marker

_NO_TOKEN = -1


class NativeVocab:
    """llama_vocab; lives as long as its model."""

    def __init__(self, handle: Any) -> None:
        lib = engine()
        self._handle = handle
        self.n_tokens: int = lib.llama_vocab_n_tokens(handle)
        self.bos: int | None = _known(lib.llama_vocab_bos(handle))
        self.eos: int | None = _known(lib.llama_vocab_eos(handle))
        self.add_bos: bool = lib.llama_vocab_get_add_bos(handle)
        self._pieces: dict[tuple[int, bool], bytes] = {}

    def tokenize(self, text: str, *, parse_special: bool = False) -> list[int]:
        """Token ids of the text, without BOS or EOS added. Lone surrogates become U+FFFD."""
        lib = engine()
        data = text.encode("utf-8", "replace")
        capacity = len(data) + 8
        buffer = (lib.llama_token * capacity)()
        n = lib.llama_tokenize(self._handle, data, len(data), buffer, capacity, False, parse_special)
        if n < 0:
            buffer = (lib.llama_token * -n)()
            n = lib.llama_tokenize(self._handle, data, len(data), buffer, -n, False, parse_special)
        return list(buffer[:n])

    def piece(self, token: int, *, special: bool = False) -> bytes:
        """The bytes a token adds to the text; control tokens are empty unless special. Cached."""
        key = (token, special)
        found = self._pieces.get(key)
        if found is None:
            found = self._pieces[key] = self._read_piece(token, special)
        return found

    def text(self, token: int) -> bytes:
        """The token as the vocabulary stores it."""
        stored: bytes = engine().llama_vocab_get_text(self._handle, token) or b""
        return stored

    def is_eog(self, token: int) -> bool:
        """Whether the token ends a generation."""
        return bool(engine().llama_vocab_is_eog(self._handle, token))

    def is_control(self, token: int) -> bool:
        """Whether the token is a control token."""
        return bool(engine().llama_vocab_is_control(self._handle, token))

    @functools.cached_property
    def eog_tokens(self) -> frozenset[int]:
        """Every id that ends a generation."""
        return frozenset(token for token in range(self.n_tokens) if self.is_eog(token))

    @functools.cached_property
    def special_tokens(self) -> dict[str, int]:
        """Tokens by the names that templates use."""
        lib = engine()
        known = {"bos_token": self.bos, "eos_token": self.eos}
        for name in ("sep", "pad", "mask"):
            known[f"{name}_token"] = _known(getattr(lib, f"llama_vocab_{name}")(self._handle))
        unknown = (token for token, has in enumerate(self._attributes) if has & lib.LLAMA_TOKEN_ATTR_UNKNOWN)
        known["unk_token"] = next(unknown, None)
        return {name: token for name, token in known.items() if token is not None}

    @functools.cached_property
    def markers(self) -> tuple[Marker, ...]:
        """All texts that `parse_special` turns into one id each (llama-vocab.cpp, tokenizer_st_partition)."""
        lib = engine()
        control = lib.LLAMA_TOKEN_ATTR_CONTROL | lib.LLAMA_TOKEN_ATTR_UNKNOWN
        found: list[Marker] = []
        for token, has in enumerate(self._attributes):
            text = (
                self.text(token).decode("utf-8", "replace")
                if has & (control | lib.LLAMA_TOKEN_ATTR_USER_DEFINED)
                else ""
            )
            if text:
                left, right = bool(has & lib.LLAMA_TOKEN_ATTR_LSTRIP), bool(has & lib.LLAMA_TOKEN_ATTR_RSTRIP)
                found.append(Marker(text, token, bool(has & control), left, right))
        return tuple(found)

    @functools.cached_property
    def _attributes(self) -> tuple[int, ...]:
        attribute_of = engine().llama_vocab_get_attr
        return tuple(attribute_of(self._handle, token) for token in range(self.n_tokens))

    @property
    def handle(self) -> Any:
        """The llama_vocab pointer, for samplers."""
        return self._handle

    def _read_piece(self, token: int, special: bool) -> bytes:
        lib = engine()
        if not 0 <= token < self.n_tokens:
            return b""
        size = 64
        while True:
            buffer = ctypes.create_string_buffer(size)
            n = lib.llama_token_to_piece(self._handle, token, buffer, size, 0, special)
            if n >= 0:
                return buffer.raw[:n]
            size = -n


def _known(token: int) -> int | None:
    return None if token == _NO_TOKEN else token
