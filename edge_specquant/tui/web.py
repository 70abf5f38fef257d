"""The same chat in a browser: textual-serve on this machine's loopback address, one program a browser tab."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Callable, Sequence

from ..errors import SetupError
from ..extras import pip_install

HOST = "127.0.0.1"


def serve(arguments: Sequence[str], port: int, say: Callable[[str], object]) -> None:
    """Serves until interrupted. Raises SetupError when textual-serve is not installed."""
    try:
        from textual_serve.server import Server
    except ImportError as error:
        raise SetupError(f"--web needs textual-serve ({error}); {pip_install('web')}") from error
    say(f"open http://{HOST}:{port} in a browser on this machine; Ctrl+C ends it")
    Server(command_line(arguments), host=HOST, port=port, title="edge_specquant").serve()


def command_line(arguments: Sequence[str]) -> str:
    """This program with these arguments, as one line for a shell."""
    return shlex.join([sys.executable, "-c", "from edge_specquant.cli import main; main()", *arguments])
