"""Hidden states of a context: what the last layer made of each token, and the next-token (MTP) heads that read them.

The engine's functions are those of src/llama-ext.h, exported under their C++ names; where a build has neither name,
nothing drafts from hidden states. Knows nothing of drafts.
"""

from __future__ import annotations

import ctypes
import functools
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .library import engine

Hidden = NDArray[np.float32]
"""Hidden states, (n_tokens, n_embd)."""

# Plain, Itanium (Linux, macOS), Microsoft.
_SET = (
    "llama_set_embeddings_nextn",
    "_Z26llama_set_embeddings_nextnP13llama_contextbb",
    "?llama_set_embeddings_nextn@@YAXPEAUllama_context@@_N1@Z",
)
_GET = (
    "llama_get_embeddings_nextn",
    "_Z26llama_get_embeddings_nextnP13llama_context",
    "?llama_get_embeddings_nextn@@YAPEAMPEAUllama_context@@@Z",
)


@functools.cache
def functions() -> tuple[Any, Any] | None:
    """(set, get), or None where this build of the engine has them under no name we know."""
    found = [_function(names) for names in (_SET, _GET)]
    if found[0] is None or found[1] is None:
        return None
    found[0].argtypes, found[0].restype = [ctypes.c_void_p, ctypes.c_bool, ctypes.c_bool], None
    found[1].argtypes, found[1].restype = [ctypes.c_void_p], ctypes.POINTER(ctypes.c_float)
    return found[0], found[1]


def keep_hidden(handle: Any, *, outputs_only: bool) -> bool:
    """From now on each decode keeps the hidden states of its tokens, or of its outputs; False where it cannot."""
    known = functions()
    if known is None:
        return False
    known[0](handle, True, outputs_only)
    return True


def hidden_rows(handle: Any, n_rows: int, n_embd: int) -> Hidden:
    """The hidden states that the last decode kept, (n_rows, n_embd), a copy."""
    known = functions()
    assert known is not None, "keep_hidden said it could not"
    engine().llama_synchronize(handle)
    rows: Hidden = np.ctypeslib.as_array(known[1](handle), (n_rows, n_embd)).copy()
    return rows


def _function(names: tuple[str, ...]) -> Any:
    library = engine().llama_cpp._lib
    return next((getattr(library, name) for name in names if hasattr(library, name)), None)
