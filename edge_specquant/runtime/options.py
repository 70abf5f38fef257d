"""How the engine is set up, and how it is made safer after a crash. Plain values that any process can pickle."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from ..errors import UsageError

OnPrefill = Callable[[int, int], None]
"""Called with (tokens of the prompt decoded, tokens to decode)."""

OBJECTIVES = ("speed", "energy")
_DEFAULT_SNAPSHOT_BYTES = 256 << 20


@dataclass(frozen=True, slots=True)
class EngineOptions:
    """n_ctx in tokens (None: what the placement plan says), n_batch in tokens (None: the engine room's default),
    threads (0: as many as are useful), GPU layers (None: what the plan says for each sibling).

    target, draft: variants used where a request names none. use_extra_bufts False turns repacked weights off; None
    is the self-test's verdict. use_kernel: the compiled kernel computes products where it is faster. calibrate:
    measure a sibling once, at its first load (1.5 s). snapshot_bytes: memory for the KV cells of branches left
    behind; snapshot_disk_bytes: the same on disk, which outlives the process (0: nothing is written). n_parallel:
    replies written at the same time, each with n_ctx tokens of its own, decoded in mixed batches. log_prompts:
    prompts and replies go to the log. debug: figures of every reply go there, texts do not. record: every round
    becomes a line of this file, labelled record_task; it holds no text. kv_type (of the KV caches), use_mmap and
    use_mlock: None is what the plan says. objective: what drafts are to save, time
    ("speed") or joules ("energy").
    """

    n_ctx: int | None = None
    n_batch: int | None = None
    n_threads: int = 0
    n_gpu_layers: int | None = None
    target: str | None = None
    draft: str | None = None
    use_extra_bufts: bool | None = None
    use_kernel: bool = True
    calibrate: bool = True
    snapshot_bytes: int = _DEFAULT_SNAPSHOT_BYTES
    snapshot_disk_bytes: int = 0
    n_parallel: int = 1
    log_prompts: bool = False
    debug: bool = False
    record: Path | None = None
    record_task: str = ""
    objective: str = "speed"
    kv_type: str | None = None
    use_mmap: bool | None = None
    use_mlock: bool | None = None

    def __post_init__(self) -> None:
        if self.objective not in OBJECTIVES:
            raise UsageError(f"objective is '{self.objective}'; it must be one of {', '.join(OBJECTIVES)}")
        if self.n_parallel < 1:
            raise UsageError(f"n_parallel is {self.n_parallel}; it must be 1 or more")
