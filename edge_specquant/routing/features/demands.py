"""What a prompt asks for: questions, reasoning or conditions, and the length of the reply.

Takes prose in any of ten languages, gives counts and a guess of tokens. Knows no syntax: it looks for words.
"""

from __future__ import annotations

import re

_MARKS = re.compile(r"[?？؟]")
_QUESTION_WORDS = re.compile(
    r"""\b(?:what|which|who|whom|whose|when|where|why|how|
    wer|wie|wo|wann|warum|weshalb|welche[rsn]?|
    qui|quoi|quel(?:le)?s?|où|quand|comment|pourquoi|combien|
    qué|quién|cuál(?:es)?|cuándo|cuánt[oa]s?|dónde|cómo|
    qual|quais|quando|quant[oa]s|onde|
    кто|что|где|когда|почему|как(?:ой|ая|ие|ую)?|сколько|
    ما|ماذا|لماذا|كيف|متى|أين|كم|هل|أيّ|
    क्या|क्यों|कैसे|कब|कहाँ|कितने|कौन|किस)\b
    |什么|为什么|怎么|哪[里些一]|几个|谁|何|なぜ|どう|どの|いつ|ですか""",
    re.VERBOSE | re.IGNORECASE,
)
# Stems of verbs that ask for a chain of thought, and words that set conditions on the reply.
_DEMANDS = re.compile(
    r"""\b(?:prove[sn]?\b|proof\b|show\ (?:that|why|how|for)|derive|explain|justif|argu(?:e|ment)|compar|contrast|
    estimat|discuss|assess|evaluat|analy[sz]|design|reconcil|distinguish|decide|determine|reconstruct|infer\b|weigh\b|trace\b|
    advise|criti|hypothes|trade-?off|step\ by\ step|refut|contradict|
    without|unless|exactly|at\ most|at\ least|no\ more\ than|fewer\ than|only\ if|if\ and\ only|
    provided|such\ that|must\b|subject\ to|
    erklär|begründ|beweis|beurteil|vergleich|wäge|ohne\b|sodass|obwohl|mindestens|höchstens|
    expliqu|démontr|montre[rz]|justifi|compare[rz]|déterminez|sans\b|au\ moins|
    explique|demuestr|justifi|expong|señal|relacion|sin\b|al\ menos|
    prove\b|mostre|sem\b|pelo\ menos|
    объясн|докаж|сравн|обоснов|найдите|без\b|чтобы|
    اشرح|احسب|بيّن|لماذا|الفرق|قارن|دون|ألا|
    समझाइए|सिद्ध|तुलना|बताइए|लेकिन|क्यों)
    |解释|证明|说明|比较|为什么|判断|不要|必须|説明|比べ|理由|検討|述べ|なぜ|ずに|ないよう""",
    re.VERBOSE | re.IGNORECASE,
)
_NUMBER_WORDS = {
    "one": 1, "two": 2, "three": 3, "four": 4, "five": 5, "six": 6, "seven": 7, "eight": 8, "nine": 9,
    "ten": 10, "eleven": 11, "twelve": 12, "twenty": 20, "hundred": 100,
    "ein": 1, "einen": 1, "un": 1, "une": 1, "una": 1, "um": 1, "uma": 1, "tres": 3, "cuatro": 4, "quatre": 4,
    "trois": 3, "dreihundert": 300, "trezentas": 300, "quarenta": 40, "одно": 1,
    "一": 1, "三": 3, "四百": 400, "एक": 1, "तीन सौ": 300, "جملة": 1, "مئتي": 200,
}  # fmt: skip
_TOKENS_PER_UNIT = (
    (re.compile(r"words?|wort|wörter|mots?|palabras?|palavras?|слов\w*|كلمة|शब्द.*"), 1.4),
    (re.compile(r"字"), 1.2),
    (re.compile(r"sentences?|satz|sätze|phrases?|frases?|предложени\w*|句|वाक्य"), 25.0),
    (re.compile(r"lines?|zeilen?|lignes?|líneas?|linhas?|строк\w*|行"), 14.0),
    (re.compile(r"paragraphs?|absatz|absätze|paragraphes?|párrafos?|parágrafos?|абзац\w*|段"), 110.0),
    (re.compile(r"pages?|seiten?|páginas?|страниц\w*|页|ページ"), 550.0),
    (re.compile(r"items?|points?|examples?|reasons?|fruits?|planets?"), 12.0),
)
_NUMBERS = "|".join(sorted(map(re.escape, _NUMBER_WORDS), key=len, reverse=True))
_AMOUNT = re.compile(
    rf"(?<![A-Za-zÀ-ɏа-я])(?P<number>\b\d{{1,5}}|{_NUMBERS})[\s-]*(?:\w+\s)??"
    r"(?P<unit>words?|wort|wörter|mots?|palabras?|palavras?|слов\w*|كلمة|शब्दों?|字|"
    r"sentences?|satz|sätze|phrases?|frases?|предложени\w*|句|वाक्य|lines?|zeilen|lignes|paragraphs?|absätze|paragraphes?|párrafos?|pages?|seiten|páginas?|"
    r"items?|points|examples?|reasons?|fruits?|planets?)",
    re.IGNORECASE,
)
_SHORT = re.compile(r"\b(?:yes or no|one word|single word|ja oder nein|oui ou non|sí o no)\b", re.IGNORECASE)
_GENRES = (
    (re.compile(r"\bessay\b|\bstory\b|\breport\b|\bopening page\b|\barticle\b|短文|कहानी", re.IGNORECASE), 500),
    (re.compile(r"\b(?:sonnet|letter|email|toast|monolog\w*|brief|crônica)\b|монолог|رسالة", re.IGNORECASE), 220),
    (re.compile(r"\bhaiku\b|\bslogan\b|俳句", re.IGNORECASE), 24),
)
_SHORT_TOKENS = 4
MAX_REQUESTED = 8192


def count_questions(prose: str) -> int:
    """Question marks or question words, whichever are more."""
    return max(len(_MARKS.findall(prose)), len(_QUESTION_WORDS.findall(prose)))


def count_demands(prose: str) -> int:
    """Distinct words that ask for reasoning or set conditions on the reply."""
    return len({found.lower() for found in _DEMANDS.findall(prose)})


def requested_tokens(prose: str, max_output: int | None = None) -> int | None:
    """Length of reply that the prompt names, in tokens, at most `max_output`; None when it names none."""
    named = _named_tokens(prose)
    if named is None:
        return None
    return min(named, MAX_REQUESTED if max_output is None else max_output)


def _named_tokens(prose: str) -> int | None:
    if _SHORT.search(prose):
        return _SHORT_TOKENS
    amounts = [_tokens(match["number"], match["unit"]) for match in _AMOUNT.finditer(prose)]
    if amounts:
        return max(amounts)
    return next((tokens for pattern, tokens in _GENRES if pattern.search(prose)), None)


def _tokens(number: str, unit: str) -> int:
    n = int(number) if number.isdecimal() else _NUMBER_WORDS[number.lower()]
    rate = next((rate for pattern, rate in _TOKENS_PER_UNIT if pattern.fullmatch(unit.lower())), 25.0)
    return max(1, round(n * rate))
