"""How an engine's process ended, in a sentence, and which settings are safer the next time. Pure."""

from __future__ import annotations

from dataclasses import dataclass, replace

from ...native.selftest.selftest import crash_name
from ...placement.plan.plan_types import PlacementPlan
from ..options import EngineOptions

MIN_CTX = 512
_DEFAULT_CTX = 4096
_MEMORY_SIGNALS = ("SIGKILL",)  # the out-of-memory killer of Linux
_ENGINE_SIGNALS = ("SIGSEGV", "SIGILL", "SIGBUS", "SIGFPE", "SIGABRT")


@dataclass(frozen=True, slots=True)
class Death:
    """status is the exit status (minus the signal on POSIX); hung: it was ended because it did not answer.

    doing: what it was at, as a clause ("while loading the model"). said: why it could not start, in its own words.
    plan: what it had loaded by, where that is known.
    """

    status: int
    doing: str
    hung: str | None = None
    said: str | None = None
    plan: PlacementPlan | None = None

    @property
    def signal(self) -> str | None:
        """The signal that ended it, by name."""
        return None if self.hung else crash_name(self.status)

    @property
    def sentence(self) -> str:
        """What happened, for the user."""
        if self.said:
            return f"the engine could not start: {self.said}"
        if self.hung:
            return f"the engine {self.hung} {self.doing} and was ended"
        if self.signal in _MEMORY_SIGNALS:
            return f"the engine was killed {self.doing} (out of memory?)"
        if self.signal:
            return f"the engine died of {self.signal} {self.doing}"
        return f"the engine ended {self.doing} (exit status {self.status})"


def safer(options: EngineOptions, death: Death) -> tuple[EngineOptions, str]:
    """Options for the next start after a death, and what is different about them in words (empty: nothing)."""
    if death.signal in _MEMORY_SIGNALS:
        return _smaller(options, death.plan)
    if death.hung is None and death.signal not in _ENGINE_SIGNALS:
        return options, ""
    if (options.use_extra_bufts is not False or options.use_kernel) and not death.hung:
        gpu = ", nothing on the GPU" if _uses_gpu(options, death.plan) else ""
        changed = replace(options, use_extra_bufts=False, use_kernel=False, n_gpu_layers=0)
        return changed, f"repacked weights off, compiled kernel off{gpu}"
    if _uses_gpu(options, death.plan):
        return replace(options, n_gpu_layers=0), "nothing on the GPU"
    return options, ""


def _uses_gpu(options: EngineOptions, plan: PlacementPlan | None) -> bool:
    """Whether layers were away: as the user said, else by the plan."""
    if options.n_gpu_layers is not None:
        return options.n_gpu_layers != 0
    return plan is not None and any(plan.n_gpu_layers)


def _smaller(options: EngineOptions, plan: PlacementPlan | None) -> tuple[EngineOptions, str]:
    """First without a second model in memory, then with half the context."""
    if options.draft not in ("none", "lookup"):
        changed = replace(options, draft="lookup", snapshot_bytes=0)
        if options.draft is not None or plan is None or plan.draft is not None:
            return changed, "no draft model in memory"
        options = changed  # the plan had none
    n_now = options.n_ctx or (plan.n_ctx if plan is not None else _DEFAULT_CTX)
    n_ctx = max(MIN_CTX, n_now // 2)
    if n_ctx >= n_now:
        return options, ""
    return replace(options, n_ctx=n_ctx), f"a context of {n_ctx} tokens"
