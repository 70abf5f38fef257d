"""One GGUF file + recipe (+ importance matrix) -> another GGUF file, by the engine's quantizer in a child process.

The child makes Ctrl-C immediate and turns a native abort into an error of our tree; it dies with its parent. Progress
is bytes on disk over the bytes the recipe promises. Knows nothing of families.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import IO, Any

import edge_specquant

from ...errors import DiskFullError, EngineMissingError, GGUFError, QuantizeError
from ...units import format_bytes
from ..format.atomic import FULL_DISK_ERRORS, require_space, written_whole
from ..format.container import read_container
from ..format.header import ModelCard, read_card
from ..format.writer import padded
from .recipe import Recipe

Progress = Callable[[int, int], None]
"""Called with (done_bytes, total_bytes)."""

_POLL_S = 0.1
_PROBE_BYTES = 1 << 16
_CHILD_MODULE = "edge_specquant.gguf.quantize.quantize_child"


def quantize_gguf(
    source: ModelCard,
    target: Path,
    recipe: Recipe,
    *,
    imatrix: Path | None = None,
    n_threads: int = 0,
    progress: Progress | None = None,
) -> None:
    """Writes `target` from the source model as the recipe says; whole or not at all.

    n_threads 0 takes every core. Raises QuantizeError (with the engine's words), DiskFullError, FileError.
    """
    n_bytes_total = expected_file_bytes(read_container(source.path).data_offset, recipe)
    if any(target.resolve() == path.resolve() for path in source.paths):
        raise QuantizeError(f"{target} is the source itself; choose another name, the source is never overwritten")
    require_space(target.parent, n_bytes_total)
    with written_whole(target) as partial:
        request = {
            "source": str(source.path.absolute()),
            "target": str(partial.absolute()),
            "ftype": recipe.main_type,
            "tensor_types": recipe.tensor_types,
            "imatrix": None if imatrix is None else str(imatrix.absolute()),
            "n_threads": n_threads,
        }
        _run_child(request, partial, n_bytes_total, progress)
        _check_whole(partial, recipe)
        if progress is not None:
            progress(n_bytes_total, n_bytes_total)


def prune_gguf(source: Path, target: Path, layers: Sequence[int]) -> None:
    """Writes a copy of the source without these layers; whole or not at all. Raises as `quantize_gguf` does."""
    card = read_card(source)
    require_space(target.parent, card.n_file_bytes)
    with written_whole(target) as partial:
        request = {"source": str(source.absolute()), "target": str(partial.absolute()), "prune": sorted(layers)}
        _run_child(request, partial, card.n_file_bytes, None)
        try:
            n_left = read_card(partial).n_layer
        except GGUFError as error:
            raise QuantizeError(f"the engine wrote {target.name} badly: {error}") from error
        if n_left != card.n_layer - len(set(layers)):
            raise QuantizeError(f"{target.name} has {n_left} layers after {len(layers)} of {card.n_layer} were dropped")


def expected_file_bytes(n_header_bytes: int, recipe: Recipe) -> int:
    """Bytes of the file the recipe makes: the source's header, then every tensor padded to the alignment."""
    return n_header_bytes + sum(padded(choice.n_bytes) for choice in recipe.choices)


def _run_child(request: dict[str, Any], partial: Path, n_bytes_total: int, progress: Progress | None) -> None:
    package_parent = Path(edge_specquant.__file__).absolute().parent.parent
    with tempfile.TemporaryFile() as messages:
        child = subprocess.Popen(
            [sys.executable, "-m", _CHILD_MODULE],
            cwd=package_parent,  # so that the child finds this very package, installed or not
            stdin=subprocess.PIPE,
            stdout=messages,
            stderr=subprocess.STDOUT,
        )
        try:
            assert child.stdin is not None
            child.stdin.write(json.dumps(request).encode() + b"\n")
            child.stdin.flush()
            _watch(child, partial, n_bytes_total, progress)
        except BrokenPipeError:
            child.wait()
        finally:
            child.kill()
            child.wait()
            _close_quietly(child.stdin)
        if child.returncode != 0:
            messages.seek(0)
            raise _failure(child.returncode, messages.read().decode("utf-8", errors="replace"), partial, n_bytes_total)


def _watch(child: subprocess.Popen[bytes], partial: Path, n_bytes_total: int, progress: Progress | None) -> None:
    while True:
        try:
            child.wait(timeout=_POLL_S)
            return
        except subprocess.TimeoutExpired:
            if progress is not None and partial.exists():
                progress(min(partial.stat().st_size, n_bytes_total), n_bytes_total)


def _close_quietly(pipe: IO[bytes] | None) -> None:
    if pipe is not None:
        try:
            pipe.close()
        except BrokenPipeError:  # the child was killed with words still unread
            return


def _failure(returncode: int, messages: str, partial: Path, n_bytes_total: int) -> Exception:
    last_line = next((line.strip() for line in reversed(messages.splitlines()) if line.strip()), "")
    n_written = partial.stat().st_size if partial.exists() else 0
    if _is_full(partial):
        return DiskFullError(
            f"the disk filled up while writing {_final_name(partial)} "
            f"({format_bytes(n_written)} of {format_bytes(n_bytes_total)}); free some space, then run the command again"
        )
    if returncode < 0:
        signal_name = _signal_name(-returncode)
        return QuantizeError(f"the engine died of {signal_name} while writing {_final_name(partial)}: {last_line}")
    if last_line.startswith("EngineMissingError: "):
        return EngineMissingError(last_line.partition(": ")[2])
    return QuantizeError(f"writing {_final_name(partial)} failed: {last_line or f'exit code {returncode}'}")


def _is_full(partial: Path) -> bool:
    """Asks the file system itself: the engine only says that a stream failed."""
    try:
        with partial.open("ab") as file:
            file.write(b"\0" * _PROBE_BYTES)
            file.flush()
            os.fsync(file.fileno())
    except OSError as error:
        return error.errno in FULL_DISK_ERRORS
    return False


def _check_whole(partial: Path, recipe: Recipe) -> None:
    """The engine does not notice a failed write (its stream does not throw on a full disk): look at the result."""
    try:
        written = {tensor.name: tensor.weight_type for tensor in read_container(partial).tensors}
    except GGUFError as error:
        if _is_full(partial):
            raise DiskFullError(f"the disk filled up while writing {_final_name(partial)}; free some space") from error
        raise QuantizeError(f"the engine wrote {_final_name(partial)} badly: {error}") from error
    for choice in recipe.choices:
        found = written.get(choice.tensor.name)
        if found != choice.weight_type:
            got = "is missing" if found is None else f"became {found.name}"
            raise QuantizeError(
                f"{_final_name(partial)}: tensor '{choice.tensor.name}' {got} instead of {choice.weight_type.name}"
            )


def _final_name(partial: Path) -> str:
    return partial.name.removeprefix(".").removesuffix(f".{os.getpid()}.partial")


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"
