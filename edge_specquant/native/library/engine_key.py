"""The key of everything that is kept about an engine: which build, on which processor. Loads no engine."""

from __future__ import annotations

import hashlib
import importlib.metadata
import importlib.util
from pathlib import Path

from ...bootstrap.engine.facts import read_cpu
from ...errors import EngineMissingError
from .backends import extra_backends

_FORMAT = "1"  # part of the key: raise it when the self-test learns to see more


def engine_key() -> str:
    """Names engine build and processor: binding version, each shared library's size and time, model and features;
    backends loaded beside it (EDGE_SPECQUANT_BACKENDS) are part of it.

    Raises EngineMissingError.
    """
    found = importlib.util.find_spec("llama_cpp")
    if found is None or not found.submodule_search_locations:
        raise EngineMissingError("the engine (llama-cpp-python) is not installed; run scripts/quickstart")
    libraries = sorted((Path(found.submodule_search_locations[0]) / "lib").glob("*"))
    libraries += [file for file in extra_backends() if file.is_file()]
    model, flags = read_cpu()
    parts = [_FORMAT, importlib.metadata.version("llama-cpp-python"), model, *sorted(flags)]
    parts += [f"{file.name} {file.stat().st_size} {file.stat().st_mtime_ns}" for file in libraries]
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:24]
