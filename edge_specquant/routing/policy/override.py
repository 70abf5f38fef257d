"""Manual overrides of a route, as one short text.

Takes "high", "q8" or "q8/lookup+q4/fixed:4" (parts may be empty: "/none", "//goodput"); gives what each part fixes.
Knows no policy.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from ...errors import UsageError

_TIERS = ("low", "medium", "high")
_CONTROLLER = re.compile(r"goodput|entropy|speckv|fixed:\d{1,2}")
_NAME = re.compile(r"[A-Za-z0-9_.-]+(?:\+[A-Za-z0-9_.-]+)*")
_FORM = "write a tier (low, medium, high), a variant (q8), or target/draft/controller (q8/lookup+q4/fixed:4)"


@dataclass(frozen=True, slots=True)
class Override:
    """What the user fixed by hand; None leaves the policy's choice."""

    tier: str | None = None
    target: str | None = None
    draft: str | None = None
    controller: str | None = None

    @classmethod
    def parse(cls, text: str) -> Override:
        """Raises UsageError with the allowed forms."""
        parts = [part.strip() or None for part in text.strip().split("/")]
        if len(parts) > 3 or not any(parts):
            raise UsageError(f"'{text}' is no override; {_FORM}")
        target, draft, controller = (*parts, None, None)[:3]
        for name in (target, draft):
            if name and not _NAME.fullmatch(name):
                raise UsageError(f"'{name}' is no variant in override '{text}'; {_FORM}")
        if controller and not _CONTROLLER.fullmatch(controller):
            raise UsageError(f"'{controller}' is no controller; write goodput, entropy, speckv or fixed:N")
        if target in _TIERS:
            return cls(target, None, draft, controller)
        return cls(None, target, draft, controller)
