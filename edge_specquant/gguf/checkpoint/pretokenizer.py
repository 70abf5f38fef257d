"""Which pre-tokenizer a tokenizer.json has, in llama.cpp's words. Never guesses: unknown means stop, with a checksum.

Two ways to know one: by structure (the steps that tokenizer.json itself describes, so a fine-tune with added tokens is
still recognised), and by the checksum llama.cpp's own converter uses (the ids of one fixed text, for tokenizers whose
structure llama.cpp approximates). The names are those of `tokenizer.ggml.pre` in llama-vocab.cpp.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Any

from ...errors import CheckpointError

_CONTRACTIONS = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)"
_WORD_TAIL = r" ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
_CASED_TAIL = r" ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+"
_UPPER, _LOWER = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]", r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]"
_LEAD = r"[^\r\n\p{L}\p{N}]?"


def _words(digits: str) -> str:
    return "|".join((_CONTRACTIONS, _LEAD + r"\p{L}+", digits, _WORD_TAIL))


def _cased(suffix: str, digits: str) -> str:
    words = (f"{_LEAD}{_UPPER}*{_LOWER}+{suffix}", f"{_LEAD}{_UPPER}+{_LOWER}*{suffix}")
    return "|".join((*words, digits, _CASED_TAIL))


_ONE_DIGIT, _THREE_DIGITS = r"\p{N}", r"\p{N}{1,3}"

_BY_STRUCTURE: dict[tuple[tuple[str, ...], bool], str] = {
    ((f"split {_words(_THREE_DIGITS)}", "bytes"), True): "llama-bpe",
    ((f"split {_words(_THREE_DIGITS)}", "bytes"), False): "smaug-bpe",
    ((f"split {_words(_ONE_DIGIT)}", "bytes"), False): "qwen2",
    ((f"split {_cased('', _ONE_DIGIT)}", "bytes"), True): "tekken",
    ((f"split {_cased(_CONTRACTIONS + '?', _THREE_DIGITS)}", "bytes"), False): "gpt-4o",
    (("digits", "gpt2"), False): "smollm",
    (("gpt2",), False): "gpt-2",
}
"""(steps, whole words first) -> name. `gpt2` is ByteLevel with its built-in pattern, `bytes` ByteLevel without."""

CHECK_TEXT = (
    "\n \n\n \n\n\n \t \t\t \t\n  \n   \n    \n     \n"
    "🚀 (normal) 😶\u200d🌫️ (multiple emojis concatenated) ✅ 🦙🦙 "
    "3 33 333 3333 33333 333333 3333333 33333333 3.3 3..3 3...3 "
    "កាន់តែពិសេសអាច😁 ?我想在apple工作1314151天～ ------======= "
    "нещо на Български ''''''```````\"\"\"\"......!!!!!!?????? "
    "I've been 'told he's there, 'RE you sure? 'M not sure I'll make it, 'D you like some tea? We'Ve a'lL"
)
"""The fixed text of llama.cpp's converter (`get_vocab_base_pre`); its ids, hashed, name a tokenizer."""

_BY_TOKENS: dict[str, str] = {
    "0ef9807a4087ebef797fc749390439009c3b9eda9ad1a097abbe738f486c01e5": "llama-bpe",  # Llama 3
    "9d032fcbd5501f4a38150912590928bfb36091efb5df11b8e2124b0390e3fb1e": "falcon3",
    "e636dc30a262dcc0d8c323492e32ae2b70728f4df7dfe9737d9f920a282b8aea": "qwen2",  # Qwen 1.5 to 3
    "d4540891389ea895b53b399da6ac824becc30f2fba0e9ddbb98f92e55ca0e97c": "qwen2",  # Qwen 3 embedding
    "b3f499bb4255f8ca19fccd664443283318f2fd2414d5e0b040fbdd0cc195d6c5": "deepseek-r1-qwen",
    "d4c8f286ea6b520b3d495c4455483cfa2302c0cfcd4be05d781b6a8a0a7cdaf1": "megrez",
    "63b97e4253352e6f357cc59ea5b583e3a680eaeaf2632188c2b952de2588485e": "tekken",  # Mistral Nemo
    "0e9433cbbb161f89e264eb32e8e64bfe69e834973ffca5d41d3948a604a3e2a3": "pixtral",
    "855059429035d75a914d1eda9f10a876752e281a054a7a3d421ef0533e5b6249": "smollm",
    "ccc2ef013c104be7bae2965776d611e1d7a8a2a9c547dd93a682c9a9fc80352e": "gpt-4o",  # Phi-4 mini too
    "a8594e3edff7c29c003940395316294b2c623e09894deebbc65f33f1515df79e": "dbrx",  # Phi-4 too
    "3ce83efda5659b07b1ad37ca97ca5797ea4285d9b9ab0dc679e4a720c9da7454": "gpt-2",
    "0fe1cf6eda062318a1af7270f3331a85c539a01778ff948e24388e949c5282f4": "gpt-2",
    "c136ed14d01c2745d4f60a9596ae66800e2b61fa45643e72436041855ad4089d": "smaug-bpe",
}


def known_pretokenizers() -> tuple[str, ...]:
    """Names the `--pre` flag takes."""
    return tuple(sorted({*_BY_STRUCTURE.values(), *_BY_TOKENS.values()}))


def identify_pretokenizer(document: dict[str, Any], check_ids: Sequence[int], override: str | None = None) -> str:
    """The name for a parsed tokenizer.json whose ids of CHECK_TEXT (with special tokens) are `check_ids`.

    Raises CheckpointError with the checksum when the tokenizer is unknown and no override is given.
    """
    if override is not None:
        if override not in known_pretokenizers():
            raise CheckpointError(f"'{override}' is no pre-tokenizer; known: {', '.join(known_pretokenizers())}")
        return override
    checksum = hashlib.sha256(str(list(check_ids)).encode()).hexdigest()
    ignores_merges = bool(document.get("model", {}).get("ignore_merges", False))
    found = _BY_TOKENS.get(checksum) or _BY_STRUCTURE.get((_steps(document), ignores_merges))
    if found is None:
        raise CheckpointError(
            f"the pre-tokenizer of this checkpoint is not known (checksum {checksum}); "
            f"when you know which one it is, say so with --pre ({', '.join(known_pretokenizers())})"
        )
    return found


def _steps(document: dict[str, Any]) -> tuple[str, ...]:
    """The pre-tokenizer as steps in one spelling. NFC in front is left out, as llama.cpp leaves it out."""
    normalizer = document.get("normalizer")
    if normalizer and normalizer.get("type") != "NFC":
        return ("unknown normalizer",)
    pre = document.get("pre_tokenizer") or {}
    parts = pre.get("pretokenizers", []) if pre.get("type") == "Sequence" else [pre]
    return tuple(_step(part) for part in parts)


def _step(part: dict[str, Any]) -> str:
    kind = part.get("type")
    if kind == "ByteLevel" and not part.get("add_prefix_space", True):
        return "gpt2" if part.get("use_regex", True) else "bytes"
    if kind == "Digits" and part.get("individual_digits"):
        return "digits"
    # "Removed" with "invert" keeps the matches: the pieces of "Isolated", for a pattern that matches everything.
    keeps_all = part.get("behavior") == "Isolated" or (part.get("behavior") == "Removed" and part.get("invert"))
    if kind == "Split" and keeps_all and "Regex" in part.get("pattern", {}):
        return f"split {part['pattern']['Regex']}"
    return f"unknown {kind}"
