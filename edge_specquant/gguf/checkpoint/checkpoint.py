"""A Hugging Face folder -> Checkpoint: configuration and lazily read tensors, refused early when it cannot be used.

The index decides which tensors count; stray files are ignored. Pickle files are never opened. Knows nothing of GGUF
names.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ...errors import CheckpointError
from .safetensors_file import StoredTensor, read_safetensors

SMALL_FILES = (
    "config.json",
    "generation_config.json",
    "tokenizer.json",
    "tokenizer.model",
    "tokenizer_config.json",
    "special_tokens_map.json",
    "added_tokens.json",
    "chat_template.jinja",
    "chat_template.json",
    "additional_chat_templates/tool_use.jinja",
)
"""Everything but weights that decides what a family becomes."""
INDEX_NAME = "model.safetensors.index.json"
_SINGLE_NAME = "model.safetensors"
_SHARD = re.compile(r"(.+)-(\d{5})-of-(\d{5})\.safetensors")
_PICKLE_SUFFIXES = (".bin", ".pt", ".pth", ".ckpt", ".pkl")
_MAX_JSON_BYTES = 256 << 20
_MAX_LISTED = 5
_ADAPTER_FILES = ("adapter_config.json", "adapter_model.safetensors", "adapter_model.bin")


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """One checkpoint. `config` has `text_config` merged in; `files` are all files that make it, for the hash."""

    folder: Path
    config: dict[str, Any]
    tensors: dict[str, StoredTensor]
    files: tuple[Path, ...]

    @property
    def hf_architecture(self) -> str:
        names = self.config.get("architectures")
        return str(names[0]) if isinstance(names, list) and names else str(self.config.get("model_type", "unknown"))


def open_checkpoint(folder: Path) -> Checkpoint:
    """Reads headers only. Raises CheckpointError naming what is missing, quantized, pickled or damaged."""
    _refuse_adapter(folder)
    config = read_json(folder / "config.json")
    if config is None:
        raise CheckpointError(f"{folder} has no config.json; give a Hugging Face folder, a hub id or a GGUF file")
    _refuse_quantized(folder, config)
    weight_files, tensors = _tensors(folder)
    if isinstance(config.get("text_config"), dict):
        config = {**config, **config["text_config"], "architectures": config.get("architectures")}
    quantized = next((tensor for tensor in tensors.values() if tensor.dtype.startswith("F8")), None)
    if quantized is not None:
        what = f"'{quantized.name}' is {quantized.dtype}"
        raise CheckpointError(f"{folder} is already quantized ({what}); {_FULL_PRECISION}")
    return Checkpoint(folder, config, tensors, (*_small_files(folder), *weight_files))


def read_json(path: Path) -> dict[str, Any] | None:
    """A JSON object, or None when there is no such file. Raises CheckpointError for anything else."""
    if not path.is_file():
        return None
    try:
        if path.stat().st_size > _MAX_JSON_BYTES:
            raise CheckpointError(f"{path} is {path.stat().st_size} bytes, too long for what it should be")
        document = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise CheckpointError(f"{path} cannot be read: {error}") from error
    if not isinstance(document, dict):
        raise CheckpointError(f"{path} should hold a JSON object and holds a {type(document).__name__}")
    return document


_FULL_PRECISION = "convert the full-precision checkpoint it was made from"


def _refuse_adapter(folder: Path) -> None:
    """Weights beside an adapter are its base: converting them would ignore the adapter without a word."""
    found = [path.name for path in sorted(folder.glob("adapter_*")) if path.name in _ADAPTER_FILES]
    if found:
        raise CheckpointError(
            f"{folder} holds a LoRA adapter ({_listed(found)}), which is not applied here: merge it into its base "
            "first (merge_and_unload of the peft package), or move the adapter's files away to convert the base alone"
        )


def _refuse_quantized(folder: Path, config: dict[str, Any]) -> None:
    declared = config.get("quantization_config") or config.get("text_config", {}).get("quantization_config")
    if declared:
        details = declared if isinstance(declared, dict) else {}
        method = details.get("quant_method") or ("bitsandbytes" if details.get("load_in_4bit") else "unknown method")
        bits = details.get("bits") or (4 if details.get("load_in_4bit") else None)
        how = f"{method}, {bits} bits" if bits else str(method)
        raise CheckpointError(f"{folder} is already quantized ({how}); {_FULL_PRECISION}")
    for name in ("quantize_config.json", "quant_config.json"):
        if (folder / name).is_file():
            raise CheckpointError(f"{folder} is already quantized (it has a {name}); {_FULL_PRECISION}")


def _tensors(folder: Path) -> tuple[list[Path], dict[str, StoredTensor]]:
    index = read_json(folder / INDEX_NAME)
    if index is not None:
        return _indexed_tensors(folder, index)
    files = _unindexed_files(folder)
    tensors: dict[str, StoredTensor] = {}
    for path in files:
        tensors |= read_safetensors(path)
    return files, tensors


def _indexed_tensors(folder: Path, index: dict[str, Any]) -> tuple[list[Path], dict[str, StoredTensor]]:
    weight_map = index.get("weight_map")
    if not isinstance(weight_map, dict) or not weight_map:
        raise CheckpointError(f"{folder / INDEX_NAME} has no weight_map; fetch it again")
    shards = sorted({str(shard) for shard in weight_map.values()})
    for shard in shards:
        if "/" in shard or "\\" in shard or shard in ("", ".", "..") or not shard.endswith(".safetensors"):
            raise CheckpointError(f"{folder / INDEX_NAME} names {shard!r}, which is no plain safetensors file name")
    missing = [shard for shard in shards if not (folder / shard).is_file()]
    if missing:
        raise CheckpointError(f"{folder} lacks {_listed(missing)}, which its index names; fetch them again")
    headers = {shard: read_safetensors(folder / shard) for shard in shards}
    absent = [name for name, shard in weight_map.items() if name not in headers[str(shard)]]
    if absent:
        raise CheckpointError(f"{folder}: the index names tensors that no shard has: {_listed(absent)}")
    tensors = {name: headers[str(shard)][name] for name, shard in weight_map.items()}
    return [folder / INDEX_NAME, *(folder / shard for shard in shards)], tensors


def _unindexed_files(folder: Path) -> list[Path]:
    if (folder / _SINGLE_NAME).is_file():
        return [folder / _SINGLE_NAME]
    found = sorted(folder.glob("*.safetensors"))
    if not found:
        raise CheckpointError(_why_no_weights(folder))
    match = _SHARD.fullmatch(found[0].name)
    if match:
        names = [f"{match[1]}-{number:05d}-of-{match[3]}.safetensors" for number in range(1, int(match[3]) + 1)]
        missing = [name for name in names[:10_000] if not (folder / name).is_file()]
        if missing:
            raise CheckpointError(f"{folder} lacks {_listed(missing)}; fetch them again")
        return [folder / name for name in names]
    if len(found) > 1:
        raise CheckpointError(f"{folder} has {_listed([path.name for path in found])} and no {INDEX_NAME} to choose by")
    return found


def _why_no_weights(folder: Path) -> str:
    names = sorted(path.name for path in folder.iterdir()) if folder.is_dir() else []
    pickled = [name for name in names if name.endswith(_PICKLE_SUFFIXES)]
    if pickled:
        return (
            f"{folder} holds its weights as pickle ({_listed(pickled)}); a pickle file can run any program when it is "
            "opened, so it is refused: use the safetensors revision of this checkpoint, or save it as safetensors"
        )
    ggufs = [name for name in names if name.endswith(".gguf")]
    if ggufs:
        return f"{folder} holds GGUF files ({_listed(ggufs)}); give the path of one of them"
    return f"{folder} has no safetensors file"


def _small_files(folder: Path) -> list[Path]:
    """Everything but weights that decides what the family becomes."""
    return [folder / name for name in SMALL_FILES if (folder / name).is_file()]


def _listed(names: list[str]) -> str:
    more = f" and {len(names) - _MAX_LISTED} more" if len(names) > _MAX_LISTED else ""
    return ", ".join(names[:_MAX_LISTED]) + more
