"""A checkpoint's tokenizer files -> the vocabulary fields of a GGUF.

Takes the folder and the number of embedding rows, gives a Vocabulary: token list padded to the rows, types, scores or
merges, special ids, chat template. tokenizer.model (SentencePiece) wins over tokenizer.json where both exist, as in
llama.cpp's converter. Knows nothing of weights.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ...errors import CheckpointError
from .checkpoint import read_json
from .pretokenizer import CHECK_TEXT, identify_pretokenizer

NORMAL, UNKNOWN, CONTROL, USER_DEFINED, UNUSED, BYTE = 1, 2, 3, 4, 5, 6
"""Token types of GGUF (llama.h, `enum llama_token_type`)."""

_SPACE = "\u2581"
_ADDED_SCORE = -1000.0
_SPECIAL_KEYS = {"bos": "bos", "eos": "eos", "unk": "unknown", "pad": "padding", "sep": "seperator", "mask": "mask"}
TOOL_USE = "tool_use"
TOOL_TEMPLATE_FILE = "additional_chat_templates/tool_use.jinja"


@dataclass(frozen=True, slots=True)
class Vocabulary:
    """What `tokenizer.ggml.*` will say. `scores` for SentencePiece, `merges` for BPE; ids by GGUF's names."""

    model: str
    pre: str
    tokens: tuple[str, ...]
    types: tuple[int, ...]
    scores: tuple[float, ...] | None
    merges: tuple[str, ...] | None
    special_ids: dict[str, int]
    eos_ids: tuple[int, ...]
    add_bos: bool
    add_eos: bool
    add_space_prefix: bool | None
    chat_template: str | None
    tool_template: str | None = None
    notes: tuple[str, ...] = ()


def read_vocabulary(
    folder: Path, n_rows: int, *, pre: str | None = None, space_prefix: bool | None = None
) -> Vocabulary:
    """Reads the tokenizer of a checkpoint folder.

    pre overrides the pre-tokenizer's name; space_prefix is the architecture's own rule. Raises CheckpointError.
    """
    try:
        return _read_vocabulary(folder, n_rows, pre, space_prefix)
    except (TypeError, ValueError, KeyError, AttributeError, IndexError) as error:
        raise CheckpointError(
            f"{folder}: the tokenizer's JSON files are not as they should be ({type(error).__name__}: {error}); "
            "fetch tokenizer.json, tokenizer_config.json and the files beside them again"
        ) from error


def _read_vocabulary(folder: Path, n_rows: int, pre: str | None, space_prefix: bool | None) -> Vocabulary:
    settings = _Settings(folder)
    if (folder / "tokenizer.model").is_file():
        table, prefixed = _sentencepiece_table(folder / "tokenizer.model")
        kind, name, merges = "llama", "default", None
    elif settings.tokenizer is not None:
        kind, name, table, merges = _json_table(folder, settings.tokenizer, pre)
        prefixed = _prepends_space(settings.tokenizer)
    else:
        raise CheckpointError(f"{folder} has neither tokenizer.json nor tokenizer.model")
    _add_tokens(table, settings.added_tokens())
    settings.require_end(table, n_rows)
    notes = _fit_rows(table, n_rows)
    special_ids = settings.special_ids(table)
    eos_ids = settings.eos_ids(special_ids.get("eos"), n_rows)
    add_bos, add_eos = settings.added_ends(special_ids)
    return Vocabulary(
        model=kind,
        pre=name,
        tokens=tuple(entry.text for entry in table),
        types=tuple(entry.kind for entry in table),
        scores=tuple(entry.score for entry in table) if kind == "llama" else None,
        merges=merges,
        special_ids=_with_extra_ends(special_ids, eos_ids),
        eos_ids=eos_ids,
        add_bos=add_bos,
        add_eos=add_eos,
        add_space_prefix=(prefixed if space_prefix is None else space_prefix) if kind == "llama" else None,
        chat_template=settings.chat_template(),
        tool_template=settings.tool_template(),
        notes=notes,
    )


def vocabulary_fields(vocabulary: Vocabulary) -> dict[str, Any]:
    """The metadata fields, complete keys."""
    fields: dict[str, Any] = {
        "model": vocabulary.model,
        "pre": vocabulary.pre,
        "tokens": list(vocabulary.tokens),
        "token_type": list(vocabulary.types),
        "scores": None if vocabulary.scores is None else list(vocabulary.scores),
        "merges": None if vocabulary.merges is None else list(vocabulary.merges),
        "add_bos_token": vocabulary.add_bos,
        "add_eos_token": vocabulary.add_eos,
        "add_space_prefix": vocabulary.add_space_prefix,
        "eos_token_ids": list(vocabulary.eos_ids) if len(vocabulary.eos_ids) > 1 else None,
        **{f"{name}_token_id": token_id for name, token_id in vocabulary.special_ids.items()},
    }
    named = {f"tokenizer.ggml.{key}": value for key, value in fields.items() if value is not None}
    templates = {"": vocabulary.chat_template, f".{TOOL_USE}": vocabulary.tool_template}
    named |= {f"tokenizer.chat_template{name}": text for name, text in templates.items() if text is not None}
    return named if vocabulary.tool_template is None else {**named, "tokenizer.chat_templates": [TOOL_USE]}


def reference_ids(folder: Path, text: str) -> list[int]:
    """What the checkpoint's own tokenizer makes of a text, no special tokens added. Raises CheckpointError."""
    if (folder / "tokenizer.json").is_file():
        return list(_load_tokenizer(folder).encode(text, add_special_tokens=False).ids)
    from sentencepiece import SentencePieceProcessor

    return list(SentencePieceProcessor(model_file=str(folder / "tokenizer.model")).encode(text))


@dataclass(slots=True)
class _Entry:
    text: str
    kind: int
    score: float


class _Settings:
    """The small JSON files around a tokenizer, read once."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.tokenizer = read_json(folder / "tokenizer.json")
        self.config = read_json(folder / "tokenizer_config.json") or {}
        self.special_map = read_json(folder / "special_tokens_map.json") or {}
        self.extra_tokens = read_json(folder / "added_tokens.json") or {}
        self.model_config = read_json(folder / "config.json") or {}
        self.generation = read_json(folder / "generation_config.json") or {}

    def added_tokens(self) -> dict[int, tuple[str, bool]]:
        """Id -> (text, special) from every file that may name one; the later file knows better."""
        added = {int(token_id): (text, False) for text, token_id in self.extra_tokens.items()}
        for token_id, entry in self.config.get("added_tokens_decoder", {}).items():
            added[int(token_id)] = (str(entry["content"]), bool(entry.get("special")))
        for entry in (self.tokenizer or {}).get("added_tokens", []):
            added[int(entry["id"])] = (str(entry["content"]), bool(entry.get("special")))
        return added

    def special_ids(self, table: list[_Entry]) -> dict[str, int]:
        """Special ids by GGUF's names, found by text; config.json's numbers where no text is given."""
        by_text = {entry.text: index for index, entry in reversed(list(enumerate(table)))}
        found = {}
        for key, name in _SPECIAL_KEYS.items():
            text = self._special_text(f"{key}_token")
            token_id = by_text.get(text) if text is not None else None
            if token_id is None and text is None:
                token_id = _first_id(self.model_config.get(f"{key}_token_id"))
            if token_id is not None and 0 <= token_id < len(table):
                found[name] = token_id
        return found

    def require_end(self, table: list[_Entry], n_rows: int) -> None:
        """Raises CheckpointError when the token that ends a reply has no embedding row: replies would never end."""
        end = self._special_text("eos_token")
        place = next((index for index, entry in enumerate(table) if entry.text == end), None)
        if place is not None and place >= n_rows:
            raise CheckpointError(
                f"{self.folder}: the end token {end!r} is number {place} and the model has {n_rows} embedding rows; "
                "fetch the tokenizer's files and the weights of the same revision"
            )

    def _special_text(self, key: str) -> str | None:
        for document in (self.config, self.special_map):
            value = document.get(key)
            value = value.get("content") if isinstance(value, Mapping) else value
            if isinstance(value, str):
                return value
        return None

    def eos_ids(self, main: int | None, n_rows: int) -> tuple[int, ...]:
        """Every id that ends a reply: the tokenizer's own first, then those of generation_config and config."""
        ids = [] if main is None else [main]
        for document in (self.generation, self.model_config):
            value = document.get("eos_token_id")
            ids += value if isinstance(value, list) else [] if value is None else [value]
        return tuple(dict.fromkeys(int(token_id) for token_id in ids if 0 <= int(token_id) < n_rows))

    def added_ends(self, special_ids: Mapping[str, int]) -> tuple[bool, bool]:
        """Whether encoding puts BOS in front and EOS behind; tried out where a tokenizer.json can be run."""
        if self.tokenizer is not None:
            ids = _load_tokenizer(self.folder).encode("a").ids
            bos, eos = special_ids.get("bos"), special_ids.get("eos")
            starts = bool(ids) and bos is not None and ids[0] == bos
            ends = len(ids) > 1 and eos is not None and ids[-1] == eos
            return bool(self.config.get("add_bos_token", starts)), bool(self.config.get("add_eos_token", ends))
        return bool(self.config.get("add_bos_token", True)), bool(self.config.get("add_eos_token", False))

    def chat_template(self) -> str | None:
        """The template file wins over the one in tokenizer_config.json; of several named ones, `default`."""
        file = self.folder / "chat_template.jinja"
        if file.is_file():
            return file.read_text(encoding="utf-8")
        named = self._named_templates()
        return named.get("default") or next(iter(named.values()), None)

    def tool_template(self) -> str | None:
        """The template that its makers name for conversations with tools, where they have one of its own."""
        file = self.folder / TOOL_TEMPLATE_FILE
        return file.read_text(encoding="utf-8") if file.is_file() else self._named_templates().get(TOOL_USE)

    def _named_templates(self) -> dict[str, str]:
        template = self.config.get("chat_template") or (read_json(self.folder / "chat_template.json") or {}).get(
            "chat_template"
        )
        if isinstance(template, str):
            return {"default": template}
        entries = [entry for entry in template or () if isinstance(entry, Mapping)]
        return {
            str(entry.get("name")): entry["template"] for entry in entries if isinstance(entry.get("template"), str)
        }


def _sentencepiece_table(path: Path) -> tuple[list[_Entry], bool]:
    """The pieces, and whether the model puts a space in front of a text (tried out: the flag itself is not exposed)."""
    from sentencepiece import SentencePieceProcessor

    try:
        model = SentencePieceProcessor()
        model.LoadFromFile(str(path))
    except (OSError, RuntimeError) as error:
        raise CheckpointError(f"{path} is no SentencePiece model: {error}") from error
    kinds = ((model.IsUnknown, UNKNOWN), (model.IsControl, CONTROL), (model.IsUnused, UNUSED), (model.IsByte, BYTE))
    table = [
        _Entry(model.IdToPiece(i), next((kind for test, kind in kinds if test(i)), NORMAL), float(model.GetScore(i)))
        for i in range(model.GetPieceSize())
    ]
    return table, model.EncodeAsPieces("a")[0].startswith(_SPACE)


def _prepends_space(document: dict[str, Any]) -> bool:
    """Whether tokenizer.json puts a space in front: a Prepend step, or a Metaspace that is not told never to."""
    normalizer, pre = document.get("normalizer") or {}, document.get("pre_tokenizer") or {}
    steps = normalizer.get("normalizers", [normalizer]) + pre.get("pretokenizers", [pre])
    return any(
        step.get("type") == "Prepend" or (step.get("type") == "Metaspace" and step.get("prepend_scheme") != "never")
        for step in steps
    )


def _json_table(
    folder: Path, document: dict[str, Any], pre: str | None
) -> tuple[str, str, list[_Entry], tuple[str, ...] | None]:
    """tokenizer.json: byte-level BPE, or a SentencePiece model that was saved as BPE with byte fallback."""
    model = document.get("model", {})
    if model.get("type") != "BPE" or not isinstance(model.get("vocab"), dict):
        raise CheckpointError(f"{folder}: tokenizer.json holds a {model.get('type')} model; BPE can be converted")
    n_tokens = 1 + max(model["vocab"].values(), default=-1)
    if n_tokens > 1 << 22:
        raise CheckpointError(f"{folder}: tokenizer.json has a token id of {n_tokens - 1}, which no model has")
    table = [_Entry(f"[PAD{i}]", UNUSED, _ADDED_SCORE) for i in range(n_tokens)]
    for text, token_id in model["vocab"].items():
        table[token_id] = _Entry(text, NORMAL, 0.0)
    merges = [" ".join(pair) if isinstance(pair, list) else str(pair) for pair in model.get("merges", [])]
    if model.get("byte_fallback"):
        _score_like_sentencepiece(table, model, merges)
        return "llama", "default", table, None
    check_ids = _load_tokenizer(folder).encode(CHECK_TEXT).ids
    return "gpt2", identify_pretokenizer(document, check_ids, pre), table, tuple(merges)


def _score_like_sentencepiece(table: list[_Entry], model: dict[str, Any], merges: list[str]) -> None:
    """SentencePiece merges the pair whose result scores best; the rank of the first merge to a piece is that order."""
    ids = model["vocab"]
    for rank, pair in reversed(list(enumerate(merges))):
        token_id = ids.get(pair.replace(" ", "", 1))
        if token_id is not None:
            table[token_id].score = -float(rank + 1)
    for text, token_id in ids.items():
        if len(text) == 6 and text.startswith("<0x") and text.endswith(">"):
            table[token_id].kind = BYTE
        elif text == model.get("unk_token"):
            table[token_id].kind = UNKNOWN


def _add_tokens(table: list[_Entry], added: dict[int, tuple[str, bool]]) -> None:
    for token_id, (text, special) in sorted(added.items()):
        if not 0 <= token_id < 1 << 22:
            raise CheckpointError(f"added token {text!r} has the id {token_id}, which no model has")
        while token_id >= len(table):
            table.append(_Entry(f"[PAD{len(table)}]", UNUSED, _ADDED_SCORE))
        if table[token_id].kind in (UNKNOWN, BYTE):
            continue
        is_control = special or _looks_special(text)
        # llama.cpp matches user-defined tokens on plain text, where SentencePiece's space mark is a space.
        shown = text if is_control else text.replace(_SPACE, " ")
        table[token_id] = _Entry(shown, CONTROL if is_control else USER_DEFINED, _ADDED_SCORE)


def _looks_special(text: str) -> bool:
    """Some checkpoints forget to mark their control tokens; these shapes are never text."""
    shapes = (("<|", "|>"), ("<｜", "｜>"), ("<unused", ">"))
    return text in ("<pad>", "<mask>") or any(text.startswith(a) and text.endswith(b) for a, b in shapes)


def _fit_rows(table: list[_Entry], n_rows: int) -> tuple[str, ...]:
    """Pads the list to the embedding rows; tokens without a row cannot be used and are dropped."""
    fillers = {f"[PAD{index}]" for index in range(n_rows, len(table))}
    dropped = [entry.text for entry in table[n_rows:] if entry.text not in fillers]
    del table[n_rows:]
    table.extend(_Entry(f"[PAD{index}]", UNUSED, _ADDED_SCORE) for index in range(len(table), n_rows))
    if not dropped:
        return ()
    return (f"{len(dropped)} tokens have no embedding row and were dropped: {', '.join(dropped[:3])}",)


def _with_extra_ends(special_ids: dict[str, int], eos_ids: tuple[int, ...]) -> dict[str, int]:
    """llama.cpp has two more names for ids that end a reply: end of turn, end of message."""
    ids = dict(special_ids)
    if eos_ids:
        ids["eos"] = eos_ids[0]
    for name, token_id in zip(("eot", "eom"), eos_ids[1:], strict=False):
        ids[name] = token_id
    return ids


def _first_id(value: Any) -> int | None:
    value = value[0] if isinstance(value, list) and value else value
    return value if isinstance(value, int) else None


def _load_tokenizer(folder: Path) -> Any:
    from tokenizers import Tokenizer

    try:
        return Tokenizer.from_file(str(folder / "tokenizer.json"))
    except Exception as error:  # the library raises plain Exception for every damaged file
        raise CheckpointError(f"{folder / 'tokenizer.json'} cannot be used: {error}") from error
