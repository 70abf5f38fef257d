"""GGUF header -> ModelCard: what a model is, without reading a single weight.

Takes the path of a GGUF file (any shard of a split one), gives sizes, vocabulary fingerprint, chat template and the mix
of weight types. Knows nothing of memory, devices or families.
"""

from __future__ import annotations

import functools
import hashlib
import re
import struct
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from ...errors import GGUFError, VocabularyError
from .container import Container, TensorInfo, read_container
from .layer_memory import LayerMemory, layer_memory
from .weight_types import FILE_TYPE_NAMES

_T = TypeVar("_T", int, str)

_VOCABULARY_ARRAYS = ("tokens", "token_type", "scores", "merges")
_SPECIAL_TOKENS = ("bos", "eos", "eot", "eom", "unknown", "padding", "seperator", "mask")
_VOCABULARY_SCALARS = (
    "model",
    "pre",
    "add_bos_token",
    "add_eos_token",
    "add_space_prefix",
    "remove_extra_whitespaces",
    *(f"{name}_token_id" for name in _SPECIAL_TOKENS),
)
_SHARD_NAME = re.compile(r"(?P<stem>.+)-(?P<number>\d{5})-of-(?P<count>\d{5})\.gguf", re.DOTALL)


@dataclass(frozen=True, slots=True)
class ModelCard:
    """What the header says. Lengths in tokens or features, sizes in bytes; None where the header is silent.

    `n_head_kv`, `n_head`, `n_ff` are the largest over the layers; `n_head_kv_by_layer` has one entry a layer.
    """

    paths: tuple[Path, ...]
    architecture: str
    name: str | None
    file_type: str
    n_layer: int
    n_embd: int
    n_head: int
    n_head_kv: int
    n_head_kv_by_layer: tuple[int, ...]
    head_size_k: int
    head_size_v: int
    n_ff: int
    n_ctx_train: int
    n_vocab: int
    n_expert: int
    n_expert_used: int
    memory: LayerMemory
    sliding_window: int | None
    vocabulary_sha256: str
    chat_template: str | None
    special_token_ids: dict[str, int]
    tensors: tuple[TensorInfo, ...]

    @property
    def path(self) -> Path:
        """The file to load: the only one, or the first shard."""
        return self.paths[0]

    @property
    def n_parameters(self) -> int:
        return sum(tensor.n_weights for tensor in self.tensors)

    @property
    def n_tensor_bytes(self) -> int:
        return sum(tensor.n_bytes for tensor in self.tensors)

    @property
    def n_file_bytes(self) -> int:
        return sum(path.stat().st_size for path in self.paths)

    @property
    def bits_per_weight(self) -> float:
        """True bits per weight: every tensor counted, headers not."""
        return 8 * self.n_tensor_bytes / self.n_parameters

    @property
    def weight_type_counts(self) -> dict[str, int]:
        """Weight type -> number of tensors, most frequent first."""
        return dict(Counter(tensor.weight_type.name for tensor in self.tensors).most_common())

    @property
    def n_nextn(self) -> int:
        """Next-token layers behind the trunk, which can draft (MTP)."""
        return self.memory.n_nextn

    @property
    def has_tied_embeddings(self) -> bool:
        """Whether the token embedding is also the output head (no tensor of its own)."""
        return all(tensor.name != "output.weight" for tensor in self.tensors)


def read_card(path: Path) -> ModelCard:
    """Reads the card of one model. Raises GGUFError for anything that is not one whole GGUF model."""
    containers = read_shards(path)
    first = containers[0]
    architecture = _required(first.get_str("general.architecture"), "general.architecture", first)
    sizes = _Sizes(first, architecture)
    n_layer = sizes.required("block_count")
    n_embd = sizes.required("embedding_length")
    n_head_by_layer = sizes.by_layer("attention.head_count", n_layer)
    n_head = max(n_head_by_layer)
    n_head_kv_by_layer = sizes.by_layer("attention.head_count_kv", n_layer, default=n_head)
    n_ff_by_layer = sizes.by_layer("feed_forward_length", n_layer, default=0)
    file_type = first.get_int("general.file_type")
    return ModelCard(
        paths=tuple(container.path for container in containers),
        architecture=architecture,
        name=first.get_str("general.name"),
        file_type="unknown" if file_type is None else FILE_TYPE_NAMES.get(file_type, f"type {file_type}"),
        n_layer=n_layer,
        n_embd=n_embd,
        n_head=n_head,
        n_head_kv=max(n_head_kv_by_layer),
        n_head_kv_by_layer=n_head_kv_by_layer,
        head_size_k=sizes.optional("attention.key_length", n_embd // max(n_head, 1)),
        head_size_v=sizes.optional("attention.value_length", n_embd // max(n_head, 1)),
        n_ff=max(n_ff_by_layer),
        n_ctx_train=sizes.optional("context_length", 0),
        n_vocab=_n_vocab(first),
        n_expert=sizes.optional("expert_count", 0),
        n_expert_used=sizes.optional("expert_used_count", 0),
        memory=layer_memory(
            architecture, n_head_kv_by_layer, n_ff_by_layer, functools.partial(sizes.optional, default=0)
        ),
        sliding_window=sizes.optional("attention.sliding_window", 0) or None,
        vocabulary_sha256=_vocabulary_sha256(first),
        chat_template=first.get_str("tokenizer.chat_template"),
        special_token_ids=_special_token_ids(first),
        tensors=tuple(tensor for container in containers for tensor in container.tensors),
    )


def n_nextn_layers(path: Path) -> int:
    """Next-token layers (MTP) that a file really holds; 0 for a file that cannot be read. Remembered by its date."""
    try:
        return _n_nextn_layers(path, path.stat().st_mtime_ns)
    except (GGUFError, OSError):
        return 0


@functools.lru_cache(maxsize=64)
def _n_nextn_layers(path: Path, _changed_ns: int) -> int:
    containers = read_shards(path)
    n = containers[0].get_int(f"{containers[0].get_str('general.architecture')}.nextn_predict_layers") or 0
    is_there = any(".nextn." in tensor.name for container in containers for tensor in container.tensors)
    return n if is_there else 0


def read_shards(path: Path) -> tuple[Container, ...]:
    """The containers of one model, first shard first, whichever shard `path` names.

    Raises GGUFError when a shard is missing, or renamed so that its siblings cannot be found.
    """
    picked = read_container(path)
    count = picked.get_int("split.count") or 1
    if count <= 1:
        return (picked,)
    paths = _shard_paths(path, count)
    missing = [shard.name for shard in paths if not shard.is_file()]
    if missing:
        raise GGUFError(f"{path} is one of {count} shards; missing beside it: {', '.join(missing)}")
    return tuple(picked if shard == path else read_container(shard) for shard in paths)


def vocabulary_tokens(card: ModelCard) -> list[str]:
    """All token texts in the order of their ids."""
    tokens = read_container(card.path).get("tokenizer.ggml.tokens")
    return [str(token) for token in tokens] if isinstance(tokens, list) else []


def require_same_vocabulary(left: ModelCard, right: ModelCard) -> None:
    """Raises VocabularyError naming the first difference between two vocabularies."""
    if left.vocabulary_sha256 == right.vocabulary_sha256:
        return
    where = f"{left.path.name} and {right.path.name} do not share a vocabulary"
    if left.n_vocab != right.n_vocab:
        raise VocabularyError(f"{where}: {left.n_vocab} tokens against {right.n_vocab}")
    for index, (mine, other) in enumerate(zip(vocabulary_tokens(left), vocabulary_tokens(right), strict=True)):
        if mine != other:
            raise VocabularyError(f"{where}: token {index} is {mine!r} in one and {other!r} in the other")
    for name in sorted(set(left.special_token_ids) | set(right.special_token_ids)):
        mine_id, other_id = left.special_token_ids.get(name), right.special_token_ids.get(name)
        if mine_id != other_id:
            raise VocabularyError(f"{where}: the {name} token is {mine_id} in one and {other_id} in the other")
    raise VocabularyError(f"{where}: token types, scores or merges differ")


@dataclass(frozen=True, slots=True)
class _Sizes:
    """The keys under the architecture's own prefix."""

    container: Container
    architecture: str

    def required(self, key: str) -> int:
        full_key = f"{self.architecture}.{key}"
        value = _required(self.container.get_int(full_key), full_key, self.container)
        return self._in_range(full_key, value, at_least=1)

    def optional(self, key: str, default: int) -> int:
        full_key = f"{self.architecture}.{key}"
        value = self.container.get(full_key)
        if isinstance(value, list):  # one entry a layer: the largest decides
            value = max((int(entry) for entry in value if isinstance(entry, int)), default=default)
        return default if not isinstance(value, int) else self._in_range(full_key, value, at_least=0)

    def by_layer(self, key: str, n_layer: int, default: int | None = None) -> tuple[int, ...]:
        full_key = f"{self.architecture}.{key}"
        value = self.container.get(full_key)
        if isinstance(value, list) and len(value) == n_layer and all(isinstance(entry, int) for entry in value):
            return tuple(self._in_range(full_key, int(entry), at_least=0) for entry in value)
        if isinstance(value, list):
            raise GGUFError(f"{self.container.path}: '{full_key}' has {len(value)} entries for {n_layer} layers")
        same = default if value is None and default is not None else self.required(key)
        return (same,) * n_layer

    def _in_range(self, full_key: str, value: int, *, at_least: int) -> int:
        if not at_least <= value < 1 << 31 or (full_key.endswith("block_count") and value > 4096):
            raise GGUFError(f"{self.container.path}: '{full_key}' is {value}, which no model has")
        return value


def _required(value: _T | None, key: str, container: Container) -> _T:
    if value is None:
        raise GGUFError(f"{container.path} has no '{key}'; it is not a language model that can be run")
    return value


def _shard_paths(path: Path, count: int) -> tuple[Path, ...]:
    match = _SHARD_NAME.fullmatch(path.name)
    if match is None or int(match["count"]) != count:
        raise GGUFError(
            f"{path} is one of {count} shards but is not named like one; "
            f"give the shards their names back (NAME-00001-of-{count:05d}.gguf)"
        )
    return tuple(path.with_name(f"{match['stem']}-{number:05d}-of-{count:05d}.gguf") for number in range(1, count + 1))


def _n_vocab(container: Container) -> int:
    field = container.fields.get("tokenizer.ggml.tokens")
    return 0 if field is None else field.n_elements


def _vocabulary_sha256(container: Container) -> str:
    """Fingerprint of everything that turns text into ids, and of nothing else (the chat template may differ)."""
    digest = hashlib.sha256()
    for name in (*_VOCABULARY_ARRAYS, *_VOCABULARY_SCALARS):
        field = container.fields.get(f"tokenizer.ggml.{name}")
        if field is not None:
            digest.update(name.encode() + struct.pack("<QQ", field.n_elements, len(field.raw)))
            digest.update(field.raw)
    return digest.hexdigest()


def _special_token_ids(container: Container) -> dict[str, int]:
    found = {name: container.get_int(f"tokenizer.ggml.{name}_token_id") for name in _SPECIAL_TOKENS}
    return {name: token_id for name, token_id in found.items() if token_id is not None}
