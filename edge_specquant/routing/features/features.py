"""Features of a prompt: everything a route is decided from.

Takes the text and what the caller knows (tokens, turns, the limit of the reply), gives a frozen record of numbers.
Pure: the same text and estimator give the same record. Judges a bounded sample of long texts. Knows no models and no
policy.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from .demands import count_demands, count_questions, requested_tokens
from .language import UNKNOWN, guess_language
from .sample import take_sample
from .syntax import RuleSyntax, Syntax, SyntaxEstimator
from .text_parts import count_words, split_code

PROSE, CODE, SYMBOLS, EMPTY = "prose", "code", "symbols", "empty"
CODE_ONLY_SHARE = 0.95
_DIGIT = re.compile(r"\d")
_MATH = re.compile(
    r"[=<>≤≥≠±×÷∑∏∫√∞∂∈∀∃πθλ^]|(?<=[\d)])\s?[-+*/]\s?(?=[\w(])|\s[-+*/]\s|\b[a-z]\s?[-+*/]\s?[a-z\d]\b|"
    r"\b(?:sqrt|sin|cos|log|exp|mod|lim)\b|\\[a-zA-Z]+|\b[a-zA-Z]\(\w+(?:[+-]\w+)?\)"
)
_MATH_CHARS = 4  # a formula's sign stands for about this many characters of formula
_READABLE = re.compile(r"[^\W_]")
_TURN_LIMIT = 10_000


@dataclass(frozen=True, slots=True)
class Features:
    """Numbers a route is decided from. Shares are 0 to 1 of the visible characters, counts are of the judged sample.

    n_tokens: the whole prompt in the model's tokens. depth, clauses: see `syntax.Syntax`. sentence_words: mean length.
    entity_density: names and terms per word. requested_tokens: the reply's length if the prompt names it.
    language: ISO 639-1, "unknown" or "zxx" (no words). kind: prose, code, symbols, empty.
    estimator: who measured the syntax, "rules" or "spacy". sampled: True when part of the text was not looked at.
    """

    n_tokens: int
    n_words: int
    sentence_words: float
    depth: float
    clauses: float
    entity_density: float
    code_share: float
    digit_share: float
    math_share: float
    n_questions: int
    n_demands: int
    requested_tokens: int | None
    history_turns: int
    language: str
    kind: str
    estimator: str
    sampled: bool

    @property
    def unsafe_reason(self) -> str | None:
        """Why these numbers say little about the prompt; None when they can be trusted."""
        reasons = {
            EMPTY: "the prompt is empty",
            SYMBOLS: "the prompt holds no words, only symbols",
            CODE: "the prompt is code without a question",
        }
        unknown = "its language is not known" if self.language == UNKNOWN else None
        return reasons.get(self.kind, unknown)


def extract(
    text: str,
    *,
    n_tokens: int,
    history_turns: int = 0,
    max_output: int | None = None,
    estimator: SyntaxEstimator | None = None,
) -> Features:
    """Features of the newest message.

    n_tokens: length of the prompt in the model's tokens, of the whole text however long. history_turns: messages before
    it. max_output: the caller's limit of the reply in tokens. estimator: measures syntax where it can; the rules do
    where it answers None. Never raises for any text.
    """
    sample = take_sample(text)
    parts = split_code(sample.text)
    kind = _kind(sample.text, parts.code_share)
    language = guess_language(parts.prose if kind == PROSE else sample.text)
    syntax = _measure(parts.prose, language, estimator)
    ink = max(1, sum(not char.isspace() for char in sample.text))
    return Features(
        n_tokens=n_tokens,
        n_words=round(count_words(parts.prose, language) * sample.scale),
        sentence_words=syntax.sentence_words,
        depth=syntax.depth,
        clauses=syntax.clauses,
        entity_density=min(1.0, syntax.n_names / syntax.n_words) if syntax.n_words else 0.0,
        code_share=parts.code_share,
        digit_share=len(_DIGIT.findall(sample.text)) / ink,
        math_share=min(1.0, _MATH_CHARS * len(_MATH.findall(parts.prose)) / ink),
        n_questions=count_questions(parts.prose),
        n_demands=count_demands(parts.prose),
        requested_tokens=requested_tokens(parts.prose, max_output),
        history_turns=min(history_turns, _TURN_LIMIT),
        language=language,
        kind=kind,
        estimator=syntax.estimator,
        sampled=not sample.whole,
    )


def _measure(prose: str, language: str, estimator: SyntaxEstimator | None) -> Syntax:
    measured = estimator.measure(prose, language) if estimator else None
    return measured or RuleSyntax().measure(prose, language)


def _kind(text: str, code_share: float) -> str:
    if not text.strip():
        return EMPTY
    if not _READABLE.search(text):
        return SYMBOLS
    return CODE if code_share >= CODE_ONLY_SHARE else PROSE
