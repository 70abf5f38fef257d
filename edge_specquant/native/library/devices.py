"""The engine's own device list: what ggml can compute on, with free and total memory.

Takes nothing, gives EngineDevice tuples from libggml by ctypes. Knows nothing of drivers, power or plans; a device that
the engine was not built for is not in the list, whatever the machine holds.
"""

from __future__ import annotations

import ctypes
import socket
from dataclasses import dataclass
from typing import Any

from ...errors import EngineError, UsageError
from .backends import registry_function
from .library import engine, ggml

# enum ggml_backend_dev_type, ggml/include/ggml-backend.h
_EVERY_INTERFACE = {"0.0.0.0", "0", "*", "::", "[::]"}
_CONNECT_TIMEOUT_S = 3.0
_NO_LIMIT = 1 << 50
_KINDS = ("cpu", "gpu", "igpu", "accel", "meta")


@dataclass(frozen=True, slots=True)
class EngineDevice:
    """One ggml device. kind: "cpu", "gpu" (own memory), "igpu" (shares the host's), "accel", "meta" or "rpc".

    n_free and n_total in bytes, None when the backend reports nothing. device_id: PCI address in lower case, if known.
    """

    name: str
    description: str
    kind: str
    n_free: int | None = None
    n_total: int | None = None
    device_id: str | None = None


class _Caps(ctypes.Structure):
    _fields_ = [(name, ctypes.c_bool) for name in ("async_", "host_buffer", "from_host_ptr", "events", "mmap")]


class _Props(ctypes.Structure):
    """struct ggml_backend_dev_props."""

    _fields_ = [
        ("name", ctypes.c_char_p),
        ("description", ctypes.c_char_p),
        ("n_free", ctypes.c_size_t),
        ("n_total", ctypes.c_size_t),
        ("type", ctypes.c_int),
        ("device_id", ctypes.c_char_p),
        ("caps", _Caps),
    ]


def list_devices() -> tuple[EngineDevice, ...]:
    """Every device of this process, in the engine's order. Raises EngineMissingError."""
    lib = ggml()
    lib.ggml_backend_dev_count.restype = ctypes.c_size_t
    lib.ggml_backend_dev_get.restype = ctypes.c_void_p
    lib.ggml_backend_dev_get.argtypes = [ctypes.c_size_t]
    return tuple(_describe(lib, lib.ggml_backend_dev_get(i)) for i in range(lib.ggml_backend_dev_count()))


def largest_buffer() -> int | None:
    """Bytes of the largest tensor that every device takes (ggml_backend_buft_get_max_size); None without a limit.

    Of what may hold layers: a cache that is larger makes some backends end the process.
    """
    lib = ggml()
    pointer, size = ctypes.c_void_p, ctypes.c_size_t
    lib.ggml_backend_dev_get.restype, lib.ggml_backend_dev_get.argtypes = pointer, [size]
    lib.ggml_backend_dev_buffer_type.restype, lib.ggml_backend_dev_buffer_type.argtypes = pointer, [pointer]
    lib.ggml_backend_buft_get_max_size.restype, lib.ggml_backend_buft_get_max_size.argtypes = size, [pointer]
    limits = [
        int(lib.ggml_backend_buft_get_max_size(lib.ggml_backend_dev_buffer_type(lib.ggml_backend_dev_get(i))))
        for i, device in enumerate(list_devices())
        if device.kind in {"gpu", "igpu"}
    ]
    return min((n for n in limits if n < _NO_LIMIT), default=None)


def require_rpc() -> int:
    """The handle of the engine's RPC registry. Raises EngineError when it was built without GGML_RPC."""
    lib = ggml()
    lib.ggml_backend_reg_by_name.argtypes = [ctypes.c_char_p]
    lib.ggml_backend_reg_by_name.restype = ctypes.c_void_p
    registry: int | None = lib.ggml_backend_reg_by_name(b"RPC")
    if registry is None:
        raise EngineError(
            f"the engine ({engine().__version__}) was built without RPC; "
            "build it with: scripts/quickstart --rebuild --rpc"
        )
    return registry


def add_rpc(endpoint: str) -> tuple[EngineDevice, ...]:
    """Adds the devices of a worker at 'host:port' to the list, returns the new ones.

    Raises UsageError for an endpoint that is not host:port, EngineError when the build has no RPC or nobody answers.
    Mirrors ggml_backend_rpc_add_server and ggml_backend_register.
    """
    address = check_endpoint(endpoint)
    before = len(list_devices())
    lib = ggml()
    add = _rpc_function(lib, "ggml_backend_rpc_add_server", ctypes.c_void_p, [ctypes.c_char_p])
    try:  # the engine ends the process when nobody answers, so knock first
        socket.create_connection(address, _CONNECT_TIMEOUT_S).close()
    except OSError as error:
        raise EngineError(
            f"no RPC worker answers at {endpoint} ({error}); start `edge-specquant rpc-worker` there"
        ) from error
    registry = add(endpoint.encode())
    if not registry:
        raise EngineError(f"the worker at {endpoint} offers no device")
    lib.ggml_backend_register.argtypes = [ctypes.c_void_p]
    lib.ggml_backend_register.restype = None
    lib.ggml_backend_register(registry)
    return list_devices()[before:]


def serve_rpc(endpoint: str, n_threads: int) -> None:
    """Serves this machine's devices at 'host:port' until the process ends. Raises UsageError, EngineError."""
    check_endpoint(endpoint)
    lib = ggml()
    start = _rpc_function(
        lib,
        "ggml_backend_rpc_start_server",
        None,
        [ctypes.c_char_p, ctypes.c_char_p, ctypes.c_size_t, ctypes.c_size_t, ctypes.POINTER(ctypes.c_void_p)],
    )
    handles = _worker_devices(lib)
    start(endpoint.encode(), None, n_threads, len(handles), handles)
    raise EngineError(f"the RPC server at {endpoint} ended; is the port taken?")


def check_endpoint(endpoint: str) -> tuple[str, int]:
    """'host:port' -> (host, port). Raises UsageError, also for "every interface": RPC is not authenticated."""
    host, _, port = endpoint.rpartition(":")
    if not host or not port.isdigit() or not 0 < int(port) < 65536:
        raise UsageError(f"'{endpoint}' is not an RPC address; write host:port, for example 127.0.0.1:50052")
    if host in _EVERY_INTERFACE:
        raise UsageError(f"'{host}' would serve every network this machine is in; name one address, such as 127.0.0.1")
    return host, int(port)


def _describe(lib: ctypes.CDLL, handle: int) -> EngineDevice:
    props = _Props()
    lib.ggml_backend_dev_get_props.argtypes = [ctypes.c_void_p, ctypes.POINTER(_Props)]
    lib.ggml_backend_dev_get_props.restype = None
    lib.ggml_backend_dev_get_props(handle, ctypes.byref(props))
    name = _text(props.name) or "?"
    kind = _KINDS[props.type] if 0 <= props.type < len(_KINDS) else f"type {props.type}"
    return EngineDevice(
        name=name,
        description=_text(props.description) or name,
        kind="rpc" if name.startswith("RPC") else kind,
        n_free=props.n_free or None,
        n_total=props.n_total or None,
        device_id=(_text(props.device_id) or "").lower() or None,
    )


def _worker_devices(lib: ctypes.CDLL) -> Any:
    """A C array of the devices worth serving: the GPUs, or the CPU when there is none."""
    listed = list_devices()
    chosen = [i for i, device in enumerate(listed) if device.kind in {"gpu", "igpu"}]
    chosen = chosen or [i for i, device in enumerate(listed) if device.kind == "cpu"]
    return (ctypes.c_void_p * len(chosen))(*(lib.ggml_backend_dev_get(i) for i in chosen))


def _rpc_function(lib: ctypes.CDLL, name: str, result: Any, arguments: list[Any]) -> Any:
    """A function of the RPC backend, which may live in a library of its own (ggml_backend_reg_get_proc_address)."""
    address = registry_function(lib, require_rpc(), name)
    if not address:
        raise EngineError(f"the engine's RPC backend has no {name}; its version is not the pinned one")
    return ctypes.CFUNCTYPE(result, *arguments)(address)


def _text(value: bytes | None) -> str | None:
    return value.decode("utf-8", "replace") if value else None
