"""Which language a sample is in, from its letters and its commonest words.

Takes a short text, gives an ISO 639-1 code, `UNKNOWN`, or `NO_WORDS` (the "zxx" of ISO 639-2) where there is nothing to
read. Knows no statistics beyond the tables below: it must be right about the languages it names and may say "unknown"
about the rest, since unknown only means a more careful route.
"""

from __future__ import annotations

import re
from collections import Counter

UNKNOWN = "unknown"
NO_WORDS = "zxx"

_WORD = re.compile(r"[^\W\d_]+")
_MAX_WORDS = 400
_HAN = re.compile(r"[\u3400-\u9fff\uf900-\ufaff]")
_SCRIPTS = (
    ("ja", re.compile(r"[\u3040-\u30ff]")),
    ("ko", re.compile(r"[\uac00-\ud7af\u1100-\u11ff]")),
    ("zh", _HAN),
    ("ru", re.compile(r"[\u0400-\u04ff]")),
    ("ar", re.compile(r"[\u0600-\u06ff\u0750-\u077f]")),
    ("hi", re.compile(r"[\u0900-\u097f]")),
    ("el", re.compile(r"[\u0370-\u03ff]")),
    ("he", re.compile(r"[\u0590-\u05ff]")),
    ("th", re.compile(r"[\u0e00-\u0e7f]")),
)
_LATIN = re.compile(r"[A-Za-z\u00c0-\u024f]")
# Letters that one language of a script has and the named one lacks.
_OTHERS = {"ru": ("uk", re.compile(r"[іїєґІЇЄҐ]")), "ar": ("fa", re.compile(r"[پچژگ]"))}
_JAPANESE_SHARE = 0.05  # a Chinese text may quote a kana or two

_COMMON = {
    "en": """the of and to in is are was were be been it its that this these those for on with as by at from or an not
        you your my we our they their he his she her what which who whom whose when where why how do does did done
        can could should would will shall may might must have has had there here if then than but so because while
        about into over under after before between please yes no hi hello hey thanks thank good morning name list
        write explain tell give make say find show solve add fix sort convert print translate summarize count plan
        go one two three four five more most some any all each every only just me i a us them him up out short
        shorter ready number word sentence words describe compare help need want like get use using""",
    "de": """der die das den dem des ein eine einen einem einer und oder nicht ist sind war waren wird werden wurde hat
        haben ich du er sie es wir ihr mich mir dir sich mein dein sein ihre mit von zu zum zur auf aus bei nach
        für über unter wenn weil dass ob als wie was wer wo warum welche welcher welches auch nur noch schon sehr
        hallo guten morgen tag danke bitte schreibe schreib erkläre nenne heißt kann können soll bedeutet gibt""",
    "fr": """le la les un une des du de et ou est sont était ne pas que qui quoi quel quelle quels quelles où quand
        comment pourquoi je tu il elle nous vous ils elles mon ma mes ton son sa ses ce cette ces dans sur avec
        sans pour par au aux en plus très bonjour salut merci ça va combien font donne moi écris explique c l d j
        n s qu""",
    "es": """el la los las un una unos unas de del y o es son era fue no que quien qué quién cuál cuáles cuándo cuánto
        cuántos dónde cómo por para con sin en al se su sus mi tu me te le lo más muy pero porque este esta estos
        hola buenos buenas días gracias escribe explica dime hay está resume gusta""",
    "pt": """o os as um uma uns umas de do da dos das e ou é são era foi não que quem qual quais quando quanto quantos
        quantas onde como por para com sem em no na nos nas ao se seu sua meu minha você ele ela mais muito mas
        porque este esta isso oi olá bom dia obrigado obrigada tudo bem escreva explique diga há está""",
    "it": """il lo la i gli le un uno una di del della dei delle e o è sono era non che chi quale quali quando quanto
        dove come perché per con senza in nel nella al alla si suo sua mio mia tu lui lei più molto ma ciao
        buongiorno grazie scrivi spiega cosa""",
    "nl": """de het een en of is zijn was niet dat die wie wat waar wanneer waarom hoe welke ik jij hij zij wij jullie
        mijn jouw met van naar op uit bij voor over als maar ook nog hallo dank schrijf leg kan""",
    "pl": """i w na z do nie że jest są był była to co kto gdzie kiedy dlaczego jak który która ja ty on ona my wy oni
        mój twój się dla po od przez ale lub czy cześć dzień dobry dziękuję proszę napisz wyjaśnij""",
    "tr": """ve bir bu şu o da de mi mı ne kim nerede ne zaman neden nasıl hangi ben sen biz siz onlar için ile gibi
        çok ama veya değil var yok merhaba teşekkürler lütfen yaz açıkla nedir""",
    "sv": """och en ett är var inte att som vad vem när varför hur vilken jag du han hon vi ni de min din sin med av
        till på från för om men också hej tack skriv förklara""",
}


def _languages_by_word() -> dict[str, tuple[str, ...]]:
    words = {code: frozenset(listed.split()) for code, listed in _COMMON.items()}
    return {
        word: tuple(code for code, known in words.items() if word in known)
        for word in frozenset().union(*words.values())
    }


_WORD_LANGUAGES = _languages_by_word()
# Letters that decide between Latin alphabets when common words are few.
_LETTERS = {
    "de": "ßäöü",
    "fr": "èêëîïùûœç",
    "es": "ñ¿¡",
    "pt": "ãõ",
    "pl": "łąęśżźć",
    "tr": "ğış",
    "sv": "å",
}


def guess_language(text: str) -> str:
    """ISO 639-1 code of the text's main language, `UNKNOWN`, or `NO_WORDS` when it holds no letters."""
    counts = {code: len(pattern.findall(text)) for code, pattern in _SCRIPTS}
    n_latin = len(_LATIN.findall(text))
    if not n_latin and not any(counts.values()):
        return UNKNOWN if _WORD.search(text) else NO_WORDS
    code = max(counts, key=lambda name: counts[name])
    # A word of Chinese or Japanese is about two characters and a word of English five.
    weight = 2.5 if code in ("ja", "zh") else 1.0
    if counts["zh"] and counts["ja"] >= _JAPANESE_SHARE * counts["zh"]:
        code, weight = "ja", 2.5
    n_script = counts[code] + (counts["zh"] if code == "ja" else 0)
    if n_script * weight > n_latin:
        return _refine(code, text)
    return _guess_latin(text)


def is_cjk(language: str) -> bool:
    """True for languages written without spaces between words, where a word is about two characters."""
    return language in ("zh", "ja", "th")


def _refine(code: str, text: str) -> str:
    other = _OTHERS.get(code)
    return other[0] if other and other[1].search(text) else code


def _guess_latin(text: str) -> str:
    words = _WORD.findall(text.lower())[:_MAX_WORDS]
    hits: Counter[str] = Counter()
    for word in words:
        languages = _WORD_LANGUAGES.get(word, ())
        for code in languages:
            hits[code] += 12 // len(languages)  # a word shared by languages speaks less for each
    for code, letters in _LETTERS.items():
        if any(letter in text for letter in letters):
            hits[code] += 8
    return hits.most_common(1)[0][0] if hits else UNKNOWN
