"""A form compiled in a process of its own, with bounds on seconds and memory: what hangs or dies there is refused.

Run as `python -m edge_specquant.engine.structured.trial`: a form as JSON comes in, its problem or null goes out.
"""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import asdict

from ...errors import GrammarError
from .form import Form

MAX_CPU_S = 3
MAX_WALL_S = 30.0  # a busy machine gives few of them to us
MAX_MEMORY_BYTES = 1 << 30


def try_out(form: Form) -> str | None:
    """The form's problem, or None. Raises GrammarError where it took too long or too much."""
    command = [sys.executable, "-m", __spec__.name if __name__ == "__main__" else __name__]
    try:
        done = subprocess.run(
            command, input=json.dumps(asdict(form)).encode(), capture_output=True, timeout=MAX_WALL_S, check=False
        )
    except subprocess.TimeoutExpired:
        raise _too_much(form) from None
    if done.returncode != 0:
        raise _too_much(form)
    found: str | None = json.loads(done.stdout)
    return found


def _too_much(form: Form) -> GrammarError:
    labels = ", ".join(label for label, _ in form.schemas) or f"the {form.kind}"
    return GrammarError(
        f"{labels}: not compiled within {MAX_CPU_S} s and {MAX_MEMORY_BYTES >> 20:,} MiB; simplify its patterns"
    )


def _bound() -> None:
    if sys.platform == "win32":
        return  # the clock alone
    import resource

    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    resource.setrlimit(resource.RLIMIT_CPU, (MAX_CPU_S, MAX_CPU_S))
    if sys.platform != "darwin":  # which reserves far more than it uses
        resource.setrlimit(resource.RLIMIT_AS, (MAX_MEMORY_BYTES, MAX_MEMORY_BYTES))


def main() -> int:
    """Reads a form, says what is wrong with it."""
    _bound()
    from .compiling import problem

    given = json.loads(sys.stdin.buffer.read())
    form = Form(given["kind"], given["text"], tuple((label, text) for label, text in given["schemas"]))
    print(json.dumps(problem(form)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
