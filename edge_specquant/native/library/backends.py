"""ggml's list of backends: loads those that are libraries of their own, and says which CPU variant was taken.

Takes libggml and a folder. An engine built with GGML_BACKEND_DL has no backend until it is told where they lie; one
built with GGML_CPU_ALL_VARIANTS has one for each kind of processor, of which ggml takes the best that runs here.
EDGE_SPECQUANT_BACKENDS names libraries to load beside those, such as a libggml-vulkan. Knows nothing of models.
"""

from __future__ import annotations

import ctypes
import os
import re
import sys
from pathlib import Path

from ...errors import EngineMissingError

CPU_DEVICE = 0  # enum ggml_backend_dev_type, ggml/include/ggml-backend.h
EXTRA_VARIABLE = "EDGE_SPECQUANT_BACKENDS"
_VARIANT_FILE = re.compile(r"libggml-cpu-(.+)\.(?:so|dylib)$")


def load_backends(library: ctypes.CDLL, folder: Path) -> None:
    """Loads what lies in `folder` when nothing is compiled in. Raises EngineMissingError when no CPU backend fits."""
    library.ggml_backend_reg_count.restype = ctypes.c_size_t
    if library.ggml_backend_reg_count() == 0:
        # Without a folder ggml looks beside Python's executable and in the working folder.
        load = library.ggml_backend_load_all_from_path
        load.restype, load.argtypes = None, [ctypes.c_char_p]
        load(os.fsencode(folder))
    if _cpu_registry(library) is None:
        raise EngineMissingError(
            f"none of the engine's CPU variants in {folder} runs on this processor; build the engine for it: "
            "scripts/quickstart --rebuild"
        )
    for file in extra_backends():
        load_backend(library, file)


def extra_backends() -> tuple[Path, ...]:
    """The libraries that EDGE_SPECQUANT_BACKENDS names, separated as in PATH."""
    return tuple(Path(part) for part in os.environ.get(EXTRA_VARIABLE, "").split(os.pathsep) if part)


def load_backend(library: ctypes.CDLL, file: Path) -> None:
    """Adds one backend to those that are registered (ggml_backend_load). Raises EngineMissingError.

    ggml itself refuses one of another API version (GGML_BACKEND_API_VERSION).
    """
    if not file.is_file():
        raise EngineMissingError(f"there is no backend at {file}; {EXTRA_VARIABLE} names a file that is not there")
    load = library.ggml_backend_load
    load.restype, load.argtypes = ctypes.c_void_p, [ctypes.c_char_p]
    if not load(os.fsencode(file)):
        raise EngineMissingError(
            f"the backend {file} cannot be loaded: its driver or loader is missing, or it is of another ggml version; "
            f"unset {EXTRA_VARIABLE} to go on without it"
        )


def cpu_variant(library: ctypes.CDLL) -> str | None:
    """Which of several CPU variants is in use, such as "haswell"; None when the engine has only one or cannot say."""
    address = cpu_function(library, "ggml_backend_get_features")
    file = _file_of(address) if address else None
    found = _VARIANT_FILE.search(file or "")
    return found[1] if found else None


def cpu_function(library: ctypes.CDLL, name: str) -> int | None:
    """Address of a function of the CPU backend, which need not be part of libggml itself."""
    registry = _cpu_registry(library)
    return registry_function(library, registry, name) if registry else None


def registry_function(library: ctypes.CDLL, registry: int, name: str) -> int | None:
    """Address of a function that a backend offers by name (ggml_backend_reg_get_proc_address), None if it does not."""
    look_up = library.ggml_backend_reg_get_proc_address
    look_up.argtypes, look_up.restype = [ctypes.c_void_p, ctypes.c_char_p], ctypes.c_void_p
    address: int | None = look_up(registry, name.encode())
    return address


def _cpu_registry(library: ctypes.CDLL) -> int | None:
    by_type, registry_of = library.ggml_backend_dev_by_type, library.ggml_backend_dev_backend_reg
    by_type.argtypes, by_type.restype = [ctypes.c_int], ctypes.c_void_p
    registry_of.argtypes, registry_of.restype = [ctypes.c_void_p], ctypes.c_void_p
    device = by_type(CPU_DEVICE)
    registry: int | None = registry_of(device) if device else None
    return registry


class _SymbolInfo(ctypes.Structure):
    """Dl_info of dlfcn.h."""

    _fields_ = (
        ("file", ctypes.c_char_p),
        ("base", ctypes.c_void_p),
        ("symbol", ctypes.c_char_p),
        ("symbol_address", ctypes.c_void_p),
    )


def _file_of(address: int) -> str | None:
    """The shared library that holds this address (dladdr), None on systems without that function."""
    if sys.platform == "win32":
        return None
    look_up = ctypes.CDLL(None).dladdr
    look_up.argtypes, look_up.restype = [ctypes.c_void_p, ctypes.c_void_p], ctypes.c_int
    info = _SymbolInfo()
    return os.fsdecode(info.file) if look_up(address, ctypes.byref(info)) and info.file else None
