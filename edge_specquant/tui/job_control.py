"""A stopped and continued program keeps one reader of its keys.

Textual starts its terminal anew at every SIGCONT. After a SIGSTOP from outside (a debugger, a job scheduler, `kill
-STOP`), which nobody can catch, the old reader still runs: two of them would share the keys and swap letters.
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from textual.app import App

_READER = "textual-input"  # the thread's name in Textual's drivers


def keep_one_reader(app: App[Any]) -> None:
    """To be called once the app runs. Where the driver listens to no SIGCONT, nothing changes."""
    number = getattr(signal, "SIGCONT", None)
    if number is None or threading.current_thread() is not threading.main_thread():
        return
    resume = signal.getsignal(number)
    if callable(resume):
        signal.signal(number, _only_without_reader(app, resume))


def _only_without_reader(app: App[Any], resume: Callable[..., object]) -> Callable[..., None]:
    def continued(*arguments: object) -> None:
        if any(thread.name == _READER for thread in threading.enumerate()):
            app.call_later(app.refresh)  # whatever painted the terminal meanwhile
        else:
            resume(*arguments)

    return continued
