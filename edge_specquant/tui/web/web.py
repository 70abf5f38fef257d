"""The same chat in a browser: textual-serve on this machine's loopback address, one program a browser tab."""

from __future__ import annotations

import shlex
import socket
import subprocess
import sys
from collections.abc import Callable, Sequence

from ...errors import SetupError, UsageError
from ...extras import pip_install

HOST = "127.0.0.1"


def serve(arguments: Sequence[str], port: int, say: Callable[[str], None]) -> None:
    """Serves until interrupted; port 0 is a free one. Raises SetupError without textual-serve, UsageError."""
    try:
        from .web_server import ChatServer
    except ImportError as error:
        raise SetupError(f"--web needs textual-serve ({error}); {pip_install('web')}") from error
    ChatServer(command_line(arguments), HOST, free_port(port), say).serve()


def command_line(arguments: Sequence[str]) -> str:
    """This program with these arguments, as one line for the system's shell."""
    words = [sys.executable, "-c", "from edge_specquant.cli import main; main()", *arguments]
    return subprocess.list2cmdline(words) if sys.platform == "win32" else shlex.join(words)


def free_port(port: int) -> int:
    """The port, or any free one for 0. Raises UsageError when somebody has it."""
    with socket.socket() as probe:
        if sys.platform != "win32":  # there it would take a port that is in use
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((HOST, port))
        except OSError as error:
            raise UsageError(f"port {port} cannot be used ({error.strerror or error}); try --port 0") from error
        return int(probe.getsockname()[1])
