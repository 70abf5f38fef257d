"""Syntax and names of a prose sample: what an estimator measures, and the estimator that needs no model.

Takes prose and its language; gives the depth of the sentences' trees, clauses per sentence, and the count of names and
terms. The rules take depth from sentence length and clauses from the words and marks that open one; their constants
were fitted to spaCy's parser on this project's English prompts, so that both speak on one scale. Knows no spaCy.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from typing import Protocol

from .text_parts import count_words, sentences, words

RULES = "rules"


@dataclass(frozen=True, slots=True)
class Syntax:
    """depth: levels of the dependency tree under the root; clauses: per sentence, at least 1; both weighted by words.

    sentence_words: mean words a sentence. n_names counts named entities and technical terms; n_words the words they
    were counted in.
    """

    depth: float
    clauses: float
    sentence_words: float
    n_names: int
    n_words: float
    estimator: str = RULES


class SyntaxEstimator(Protocol):
    """Something that measures prose; None means that it cannot now, or not this language."""

    def measure(self, prose: str, language: str) -> Syntax | None:
        """Depth, clauses and names of the prose."""
        ...


# Words that open a subordinate or coordinate clause.
_OPENERS = {
    "en": """that which who whom whose when where while if because since although though unless until whether before
        after as than how why what so but and or to""",
    "de": """dass der die das den dem weil wenn ob obwohl als während bevor nachdem damit wie warum weshalb was wer und
        aber zu um""",
    "fr": "que qui dont où quand si parce puisque quoique lorsque comme pourquoi comment et mais ou pour de alors",
    "es": "que quien cuyo donde cuando si porque aunque mientras como para y pero pues cual",
    "pt": "que quem cujo onde quando se porque embora enquanto como para e mas pois qual",
    "it": "che chi cui dove quando se perché benché mentre come per e ma quale",
    "nl": "dat die wie wat waar wanneer als omdat hoewel terwijl of en maar om te",
    "pl": "że który która które kto gdzie kiedy jeśli bo ponieważ chociaż aby i ale czy jak",
    "ru": """что который которая которое которые которого которой которых которым где когда если потому хотя чтобы пока
        как и но а чем почему""",
    "ar": "أن إن الذي التي لأن إذا حين مع حتى ثم لكن ولا ومن كيف لماذا وما أو",
    "hi": "कि जो जिसका जिससे जिसे जब जहाँ अगर क्योंकि ताकि लेकिन और तो जबकि क्यों कैसे",
}
_CJK_OPENERS = re.compile(
    r"因为|所以|如果|虽然|但是|可是|以及|并且|并|而|的是|为什么|怎么|既|又|ので|から|けれど|のに|ため|ながら|場合|ときに?|ても|では|が、|て、|で、"
)
_MARKS = re.compile(r"[,;:()，、；：（）،؛—–]")
_SENTENCE_LEADS = re.compile(r"^[\"'“«(\[]*")
_ACRONYM = re.compile(r"\b[A-Z]{2,12}s?\b|\b[A-Za-z]{1,20}\d\w{0,20}|\b\w{1,40}_\w{1,40}|\b[a-z]{1,20}[A-Z]\w{0,40}")
_NUMBER = re.compile(r"\d[\d.,:/%]*")
_LONG_WORD = re.compile(r"\b[^\W\d_]{13,}\b")
_QUOTED = re.compile(r"《[^》]{1,30}》|「[^」]{1,20}」|[\u30a0-\u30ff]{3,}")
# Least squares on spaCy's figures for the English sentences of tests/data/prompts300.jsonl: r = 0.85 and 0.87.
_DEPTH_BASE = -2.41
_DEPTH_PER_LOG_WORD = 1.82
_CLAUSE_BASE = 0.88
_CLAUSE_PER_OPENER = 0.64
_CLAUSE_PER_MARK = 0.07
_NOT_NAMES = {"I", "I'm", "I've", "I'd", "I'll", "A", "The"}


class RuleSyntax:
    """The estimator that always answers."""

    def measure(self, prose: str, language: str) -> Syntax:
        """Never None; unknown languages are counted by marks and length alone."""
        openers = frozenset(_OPENERS.get(language, "").split())
        parts = sentences(prose)
        shapes = [_shape(part, language, openers) for part in parts]
        total = sum(n for n, _, _ in shapes)
        if total <= 0:
            return Syntax(0.0, 1.0, 0.0, 0, 0.0)
        depth = sum(n * depth for n, depth, _ in shapes) / total
        clauses = sum(n * clauses for n, _, clauses in shapes) / total
        return Syntax(depth, clauses, total / len(shapes), count_terms(prose) + _count_names(parts, language), total)


def count_terms(text: str) -> int:
    """Technical terms: acronyms, identifiers, long words, quoted titles and katakana loans. Needs no model."""
    return len(_ACRONYM.findall(text)) + len(_LONG_WORD.findall(text)) + len(_QUOTED.findall(text))


def _shape(sentence: str, language: str, openers: frozenset[str]) -> tuple[float, float, float]:
    """(words, depth, clauses) of one sentence."""
    n_words = count_words(sentence, language)
    found = [word for word in words(sentence.lower()) if word in openers]
    n_openers = len(found) + len(_CJK_OPENERS.findall(sentence))
    n_marks = len(_MARKS.findall(sentence))
    depth = _DEPTH_BASE + _DEPTH_PER_LOG_WORD * math.log2(1 + n_words)
    clauses = _CLAUSE_BASE + _CLAUSE_PER_OPENER * n_openers + _CLAUSE_PER_MARK * n_marks
    return n_words, min(max(depth, 0.0), n_words), max(1.0, clauses)


def _count_names(parts: list[str], language: str) -> int:
    """Runs of capitalised words inside sentences, and numbers; German nouns count only in runs of two."""
    n_names = 0
    for part in parts:
        n_names += len(_NUMBER.findall(part))
        run = 0
        for position, word in enumerate(words(_SENTENCE_LEADS.sub("", part))):
            is_name = word[0].isupper() and word not in _NOT_NAMES and position > 0
            run = run + 1 if is_name else 0
            n_names += run == (2 if language == "de" else 1)
    return n_names
