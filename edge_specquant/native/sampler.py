"""llama.cpp's samplers over one row of logits: truncation, temperature, DRY and grammars, without a context.

`Truncation` turns a row into the few candidates left; `Grammar` says which tokens may come next. Choosing among what is
left, penalties and bias are the engine room's (`engine/sampling.py`).
"""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..errors import GrammarError
from ..params import SamplingParams
from .library.library import engine, log_sink
from .protocol import Logits

_CANDIDATE = np.dtype([("id", np.int32), ("logit", np.float32), ("p", np.float32)])
_DRY_BREAKERS = (b"\n", b":", b'"', b"*")


class _Candidates:
    """llama_token_data_array over numpy memory, made once per vocabulary size."""

    def __init__(self, n_vocab: int) -> None:
        self._ids = np.arange(n_vocab, dtype=np.int32)
        self._data = np.empty(n_vocab, dtype=_CANDIDATE)
        self.native = engine().llama_token_data_array()

    def fill(self, row: Logits) -> Any:
        """Loads each token with its logit; a row may be shorter than the vocabulary (a draft's).

        Impossible ones (-inf) are left out: some samplers would make them not a number.
        """
        ids = np.flatnonzero(row > -np.inf) if row.size and row.min() == -np.inf else self._ids[: row.size]
        data = self._data[: ids.size]
        data["id"] = ids
        data["logit"] = row[ids] if ids.size < row.size else row
        return self._point(data)

    def single(self, token: int) -> Any:
        """Loads one token with logit 0."""
        data = self._data[:1]
        data["id"], data["logit"] = token, 0.0
        return self._point(data)

    def remaining(self) -> NDArray[Any]:
        """What the samplers left: a view with fields id, logit, p."""
        address = ctypes.addressof(self.native.data.contents)
        raw = (ctypes.c_byte * (self.native.size * _CANDIDATE.itemsize)).from_address(address)
        return np.frombuffer(raw, dtype=_CANDIDATE)

    def _point(self, data: NDArray[Any]) -> Any:
        lib = engine()
        self.native.data = ctypes.cast(data.ctypes.data, lib.llama_token_data_p)
        self.native.size = data.size
        self.native.selected = -1
        self.native.sorted = False
        return ctypes.byref(self.native)


class Truncation:
    """DRY, top-k, typical, top-p, min-p and temperature, in llama.cpp's order (common_sampler_init).

    A greedy choice has DRY alone. XTC stands between min-p and temperature, and draws: with it both are left to the
    caller. vocab_handle and n_ctx (what a penalty_last_n of -1 means) are needed by DRY alone. Frees itself.
    """

    def __init__(self, params: SamplingParams, n_vocab: int, *, vocab_handle: Any = None, n_ctx: int = 0) -> None:
        lib = engine()
        self._candidates = _Candidates(n_vocab)
        self._chain = lib.llama_sampler_chain_init(lib.llama_sampler_chain_default_params())
        self._dry = _dry_sampler(lib, params, vocab_handle, n_ctx)
        for sampler in (self._dry, *_truncating_samplers(lib, params)):
            if sampler is not None:
                lib.llama_sampler_chain_add(self._chain, sampler)
        self.has_state = self._dry is not None

    @property
    def keeps_history(self) -> bool:
        """Whether `accept` matters (DRY is on)."""
        return self._dry is not None

    def apply(self, row: Logits) -> tuple[NDArray[np.int32], NDArray[np.float64]]:
        """Row (n_vocab,) -> ids (k,) and logits (k,) of the candidates left, temperature applied, best first or not."""
        engine().llama_sampler_apply(self._chain, self._candidates.fill(row))
        left = self._candidates.remaining()
        return left["id"].copy(), left["logit"].astype(np.float64)

    def accept(self, token: int) -> None:
        """Tells DRY that the token is now history."""
        if self._dry is not None:
            engine().llama_sampler_accept(self._dry, token)

    def fork(self) -> Truncation:
        """A copy with its own history."""
        lib = engine()
        copy = object.__new__(Truncation)
        copy._candidates = self._candidates
        copy._chain = lib.llama_sampler_clone(self._chain)
        copy.has_state = self.has_state
        copy._dry = lib.llama_sampler_chain_get(copy._chain, 0) if self._dry is not None else None
        return copy

    def close(self) -> None:
        """Frees the chain and what it owns; twice is fine."""
        chain, self._chain = self._chain, None
        if chain:
            engine().llama_sampler_free(chain)

    def __del__(self) -> None:
        if getattr(self, "_chain", None):
            self.close()


class Grammar:
    """A GBNF grammar in one of its states. Raises GrammarError when it cannot be parsed."""

    def __init__(self, gbnf: str, vocab_handle: Any, n_vocab: int, root: str = "root") -> None:
        log_sink.clear()
        handle = engine().llama_sampler_init_grammar(vocab_handle, gbnf.encode(), root.encode())
        if not handle:
            raise GrammarError(f"the grammar cannot be used: {log_sink.tail(3) or 'no root rule?'}")
        self._handle = handle
        self._candidates = _Candidates(n_vocab)

    def allows(self, token: int) -> bool:
        """Whether the token may come next."""
        engine().llama_sampler_apply(self._handle, self._candidates.single(token))
        return bool(np.isfinite(self._candidates.remaining()["logit"][0]))

    def mask(self, row: Logits) -> Logits:
        """A copy of the row with -inf where the grammar forbids: (n_vocab,)."""
        engine().llama_sampler_apply(self._handle, self._candidates.fill(row))
        left = self._candidates.remaining()
        masked = np.full_like(row, -np.inf)
        masked[left["id"]] = left["logit"]
        return masked

    def accept(self, token: int) -> None:
        """Advances; the token must be allowed."""
        engine().llama_sampler_accept(self._handle, token)

    def fork(self) -> Grammar:
        """A copy in the same state."""
        copy = object.__new__(Grammar)
        copy._handle = engine().llama_sampler_clone(self._handle)
        copy._candidates = self._candidates
        return copy

    def close(self) -> None:
        """Frees the state; twice is fine."""
        handle, self._handle = self._handle, None
        if handle:
            engine().llama_sampler_free(handle)

    def __del__(self) -> None:
        if getattr(self, "_handle", None):
            self.close()


def _truncating_samplers(lib: Any, params: SamplingParams) -> list[Any]:
    made: list[Any] = []
    if params.greedy:
        return made
    if params.top_k > 0:
        made.append(lib.llama_sampler_init_top_k(params.top_k))
    if params.typical_p < 1:
        made.append(lib.llama_sampler_init_typical(params.typical_p, 1))
    if params.top_p < 1:
        made.append(lib.llama_sampler_init_top_p(params.top_p, 1))
    if params.min_p > 0:
        made.append(lib.llama_sampler_init_min_p(params.min_p, 1))
    if not params.xtc_probability:
        made.append(lib.llama_sampler_init_temp(params.temperature))
    return made


def _dry_sampler(lib: Any, params: SamplingParams, vocab_handle: Any, n_ctx: int) -> Any:
    if not params.dry_multiplier or vocab_handle is None:
        return None
    breakers = (ctypes.c_char_p * len(_DRY_BREAKERS))(*_DRY_BREAKERS)
    last_n = params.dry_penalty_last_n if params.dry_penalty_last_n >= 0 else n_ctx
    return lib.llama_sampler_init_dry(
        vocab_handle,
        params.dry_multiplier,
        params.dry_base,
        params.dry_allowed_length,
        last_n,
        breakers,
        len(_DRY_BREAKERS),
    )
