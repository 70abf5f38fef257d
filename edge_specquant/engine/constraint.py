"""The one seam for replies that must have a form: a grammar over a vocabulary, in one of its states.

`Constraints` compiles forms (JSON schema, regular expression, Lark, GBNF) and keeps one tokenizer for a family. A
`Constraint` says which tokens may come next, which must, and follows what was taken. Only accepted tokens reach it; a
fork costs a microsecond, so nothing is ever taken back. Knows no models and no sampling.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np
from llguidance import LLMatcher, LLTokenizer, TokenizerWrapper

from ..errors import GrammarError
from ..native.protocol import Logits, Vocab
from ..native.sampler import Grammar
from .structured.compiling import grammar_of, is_tame, limits, problem
from .structured.form import GBNF, Form
from .structured.trial import try_out

_KEPT = 16  # compiled forms, the newest


class Constraint(Protocol):
    """A grammar in one of its states."""

    @property
    def is_complete(self) -> bool:
        """Whether nothing but the end may follow."""
        ...

    def allows(self, token: int) -> bool:
        """Whether `mask` lets the token through."""
        ...

    def mask(self, row: Logits) -> Logits:
        """A copy of the row with -inf where a token may not come next; a row may be shorter than the vocabulary."""
        ...

    def accept(self, token: int) -> None:
        """Takes an allowed token. Raises GrammarError for any other, and where the grammar grows beyond its limits."""
        ...

    def validate(self, draft: Sequence[int]) -> int:
        """How many leading tokens of a draft could be taken one after the other."""
        ...

    def forced(self) -> tuple[int, ...]:
        """The tokens that must come next."""
        ...

    def frame(self) -> tuple[int, ...]:
        """The tokens of all bytes that must come next; the last may be part of a longer one, so these are a guess."""
        ...

    def fork(self) -> Constraint:
        """A copy in the same state."""
        ...


class Constraints:
    """Compiled forms and the tokenizer of one family, for any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._tokenizers: dict[int, _Tokenizer] = {}
        self._compiled: OrderedDict[tuple[Form, int], LLMatcher] = OrderedDict()

    def constraint(self, form: Form, vocab: Vocab) -> Constraint:
        """The form's constraint at its beginning; the vocabulary must live as long. Raises GrammarError."""
        if form.kind == GBNF:
            return LlamaGrammar.of(form.text, vocab)
        with self._lock:
            tokenizer = self._tokenizers.get(vocab.n_tokens)
            if tokenizer is None:
                tokenizer = self._tokenizers[vocab.n_tokens] = _Tokenizer(vocab)
        key = (form, vocab.n_tokens)
        compiled = self._compiled.get(key)
        if compiled is None:
            compiled = _compiled(form, tokenizer, vocab)
            with self._lock:
                self._compiled[key] = compiled
                while len(self._compiled) > _KEPT:
                    self._compiled.popitem(last=False)
        return Matcher(compiled.deep_copy(), tokenizer, vocab)

    def forget(self) -> None:
        """Compiles anew what is asked for next; the tokenizer stays."""
        with self._lock:
            self._compiled.clear()


def _compiled(form: Form, tokenizer: _Tokenizer, vocab: Vocab) -> LLMatcher:
    told = problem(form) if is_tame(form) else try_out(form)
    if told is not None:
        raise GrammarError(told)
    tokenizer.speak(vocab)
    made = LLMatcher(tokenizer.native, grammar_of(form), limits=limits(), log_level=0)
    if made.is_error():
        raise _error(made)
    first = made.deep_copy()
    first.compute_bitmask()
    if first.is_error():
        raise GrammarError(f"nothing can begin a reply of this form: {_first_line(first)}")
    return made


class Matcher:
    """llguidance's matcher over one reply's vocabulary."""

    def __init__(self, native: LLMatcher, tokenizer: _Tokenizer, vocab: Vocab) -> None:
        self._native = native
        self._tokenizer = tokenizer
        self._vocab = vocab
        self._forced: tuple[int, ...] | None = None
        self._frame: tuple[int, ...] | None = None

    @property
    def is_complete(self) -> bool:
        """Whether nothing but the end may follow."""
        return bool(self._native.is_stopped())

    def allows(self, token: int) -> bool:
        """As the mask, without making one."""
        if self.is_complete:
            return token in self._vocab.eog_tokens
        forced = self.forced()
        return token == forced[0] if forced else self._native.validate_tokens([token]) == 1

    def mask(self, row: Logits) -> Logits:
        """A masked copy. Raises GrammarError where the grammar grew beyond its limits."""
        self._tokenizer.speak(self._vocab)
        bits = np.zeros((self._vocab.n_tokens + 31) // 32, dtype=np.uint32)
        self._native.unsafe_compute_mask_ptr(bits.ctypes.data, bits.nbytes)
        if self._native.is_error():
            raise _error(self._native)
        allowed = np.unpackbits(bits.view(np.uint8), count=self._vocab.n_tokens, bitorder="little")
        return np.where(allowed[: row.size].view(np.bool_), row, np.float32(-np.inf))

    def accept(self, token: int) -> None:
        """Takes an allowed token."""
        self._tokenizer.speak(self._vocab)
        self._forced = self._frame = None
        if not self._native.consume_token(token):
            raise _error(self._native)

    def validate(self, draft: Sequence[int]) -> int:
        """How many leading tokens could be taken; each must be what the mask lets through."""
        return _n_allowed(self.fork(), draft, self._vocab.eog_tokens)

    def forced(self) -> tuple[int, ...]:
        """The tokens of the bytes that must come next, as the tokenizer writes them."""
        if self._forced is None:
            self._tokenizer.speak(self._vocab)
            self._forced = tuple(self._native.compute_ff_tokens())
        return self._forced

    def frame(self) -> tuple[int, ...]:
        """The forced tokens, and those of the bytes behind them that a longer token might swallow."""
        if self._frame is None:
            forced = self.forced()
            n_known = sum(len(self._vocab.piece(token)) for token in forced)
            rest = self._tokenizer(self._native.compute_ff_bytes()[n_known:])
            self._frame = forced + tuple(rest[: self._after(forced).validate(rest)] if rest else ())
        return self._frame

    def _after(self, tokens: Sequence[int]) -> Matcher:
        ahead = self.fork()
        for token in tokens:
            ahead.accept(token)
        return ahead

    def fork(self) -> Matcher:
        """A copy in the same state."""
        return Matcher(self._native.deep_copy(), self._tokenizer, self._vocab)


class LlamaGrammar:
    """llama.cpp's own sampler for GBNF: the only reader of that language with its meaning (a lexer is greedy)."""

    def __init__(self, native: Grammar, vocab: Vocab) -> None:
        self._native = native
        self._vocab = vocab

    @classmethod
    def of(cls, gbnf: str, vocab: Vocab) -> LlamaGrammar:
        """Raises GrammarError."""
        handle = getattr(vocab, "handle", None)
        if handle is None:
            raise GrammarError("this backend has no vocabulary that a GBNF grammar could use")
        return cls(Grammar(gbnf, handle, vocab.n_tokens), vocab)

    @property
    def is_complete(self) -> bool:
        """Never known before the end."""
        return False

    def allows(self, token: int) -> bool:
        """Whether the token may come next."""
        return self._native.allows(token)

    def mask(self, row: Logits) -> Logits:
        """A masked copy."""
        return self._native.mask(row)

    def accept(self, token: int) -> None:
        """Takes an allowed token."""
        self._native.accept(token)

    def validate(self, draft: Sequence[int]) -> int:
        """How many leading tokens could be taken."""
        return _n_allowed(self.fork(), draft, self._vocab.eog_tokens)

    def forced(self) -> tuple[int, ...]:
        """Not known."""
        return ()

    def frame(self) -> tuple[int, ...]:
        """Not known."""
        return ()

    def fork(self) -> LlamaGrammar:
        """A copy in the same state."""
        return LlamaGrammar(self._native.fork(), self._vocab)


def _n_allowed(ahead: Constraint, draft: Sequence[int], ends: frozenset[int]) -> int:
    """How many leading tokens a constraint takes; nothing follows one that ends the reply."""
    for n, token in enumerate(draft):
        if not ahead.allows(token):
            return n
        if token in ends:
            return n + 1
        ahead.accept(token)
    return len(draft)


class _Tokenizer:
    """The library's tokenizer over a family's vocabulary. Each thread lends it the vocabulary of its own reply, since
    the one it was made from may be freed.
    """

    def __init__(self, vocab: Vocab) -> None:
        self._lent = threading.local()
        self.speak(vocab)
        pieces = [_piece(vocab, token) for token in range(vocab.n_tokens)]
        self._ids = {piece: token for token, piece in reversed([*enumerate(pieces)]) if piece and piece[0] != 0xFF}
        self._longest = max(map(len, self._ids))
        self.eos_token_id = vocab.eos if vocab.eos is not None else min(vocab.eog_tokens)
        self.bos_token_id = vocab.bos
        self.tokens = pieces
        ends = sorted(vocab.eog_tokens) or [self.eos_token_id]
        self.native = LLTokenizer(TokenizerWrapper(self), n_vocab=vocab.n_tokens, eos_token=ends)

    def speak(self, vocab: Vocab) -> None:
        """The vocabulary that this thread's calls are about."""
        self._lent.vocab = vocab

    def __call__(self, text: bytes | str) -> list[int]:
        """Token ids whose bytes are the text's, as the model's own tokenizer has them where it adds nothing."""
        data = text.encode() if isinstance(text, str) else bytes(text)
        vocab: Vocab = self._lent.vocab
        ids = vocab.tokenize(data.decode("utf-8", "replace"))
        return ids if b"".join(map(vocab.piece, ids)) == data else self._longest_first(data)

    def _longest_first(self, data: bytes) -> list[int]:
        ids: list[int] = []
        while data:
            n = next((n for n in range(min(self._longest, len(data)), 0, -1) if data[:n] in self._ids), None)
            if n is None:
                break  # a vocabulary without this byte
            ids.append(self._ids[data[:n]])
            data = data[n:]
        return ids


def _piece(vocab: Vocab, token: int) -> bytes:
    """Bytes as they appear in a reply; 0xFF marks tokens that are no text."""
    if vocab.is_control(token) or vocab.is_eog(token):
        return b"\xff" + vocab.piece(token, special=True)
    return vocab.piece(token)


def _error(native: Any) -> GrammarError:
    return GrammarError(f"the grammar stopped: {_first_line(native)}")


def _first_line(native: Any) -> str:
    return str(native.get_error()).splitlines()[0][:300] if native.get_error() else "no reason given"
