"""Which batch widths compute the same bits on this machine, for this file: what `--strict` stands on.

A kernel may add in another order when a batch is wider: a row's logits can depend on the width it was decoded at,
and a greedy reply on how it was drafted. `certify` decodes the same tokens at every width and compares. Where all
widths from some `min_width` on agree bit for bit, a run that never decodes narrower depends on model and prompt alone.
Where they do not, near-ties below `near_tie` are the only rows that can flip; a strict run then decodes token by token.

What was compared is a short text at some widths. A context may also know that nothing in it depends on width or length.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np

from ...native.protocol import Context, Logits

WIDTHS = (1, 2, 3, 4, 5, 6, 8, 12, 16, 24, 32, 49)
_SAFETY = 2.0  # two logits may each be off by the largest difference


@dataclass(frozen=True, slots=True)
class WidthReport:
    """One width against width 1: largest logit difference, argmax flips, of them outside near-ties, bits equal."""

    width: int
    max_difference: float
    n_flips: int
    n_flips_outside_ties: int
    is_identical: bool


@dataclass(frozen=True, slots=True)
class Certificate:
    """min_width: all widths from it on agree bit for bit; None where there is none. near_tie: in logits.

    is_exact: all widths agree, and by the way it computes the context says so of any width and any length.
    """

    n_tokens: int
    min_width: int | None
    near_tie: float
    widths: tuple[WidthReport, ...]
    is_exact: bool = False

    @property
    def is_sound(self) -> bool:
        """No argmax flip is outside the near-ties."""
        return not any(report.n_flips_outside_ties for report in self.widths)

    def as_dict(self) -> dict[str, Any]:
        """JSON-ready."""
        return asdict(self) | {"is_sound": self.is_sound}

    @classmethod
    def from_dict(cls, plain: dict[str, Any]) -> Certificate:
        """From `as_dict`. Raises KeyError, TypeError on anything else."""
        widths = tuple(WidthReport(**report) for report in plain["widths"])
        is_exact = plain["is_exact"] is True
        return cls(int(plain["n_tokens"]), plain["min_width"], float(plain["near_tie"]), widths, is_exact)


def certify(context: Context, tokens: Sequence[int], widths: Iterable[int] = WIDTHS) -> Certificate:
    """Decodes the tokens at each width in turn. The context is emptied before and after.

    Raises what Context.decode raises; widths the context cannot take are left out.
    """
    usable = [w for w in widths if w <= min(context.max_rows, context.n_batch, len(tokens))]
    rows = {width: _rows_at(context, tokens, width) for width in usable}
    context.clear()
    judged = judge(rows)
    return replace(judged, is_exact=judged.min_width == 1 and getattr(context, "is_exact", False))


def judge(rows: dict[int, Logits]) -> Certificate:
    """From logits by width, each (n_tokens, n_vocab), width 1 among them. Pure."""
    base = rows[1]
    differences = {width: float(np.abs(each - base).max()) for width, each in rows.items()}
    near_tie = _SAFETY * max(differences.values())
    top_two = np.partition(base, -2, axis=1)[:, -2:]
    is_tie = (top_two[:, 1] - top_two[:, 0]) < near_tie
    reports = []
    for width, each in rows.items():
        flips = each.argmax(axis=1) != base.argmax(axis=1)
        outside = int((flips & ~is_tie).sum())
        reports.append(WidthReport(width, differences[width], int(flips.sum()), outside, bool((each == base).all())))
    return Certificate(len(base), _min_width(rows), near_tie, tuple(reports))


def _min_width(rows: dict[int, Logits]) -> int | None:
    """The narrowest width from which on all agree; the widest alone proves nothing."""
    ordered = sorted(rows)
    widest = rows[ordered[-1]]
    found = None
    for width in reversed(ordered[:-1]):
        if not np.array_equal(rows[width], widest):
            break
        found = width
    return found


def _rows_at(context: Context, tokens: Sequence[int], width: int) -> Logits:
    """Every token's row, decoded `width` at a time; the last batch is filled up with the tokens before it."""
    context.clear()
    parts: list[Logits] = []
    for start in range(0, len(tokens), width):
        chunk = list(tokens[start : start + width])
        n_real = len(chunk)
        chunk += [chunk[-1]] * (width - n_real)
        parts.append(context.decode(chunk, start, width)[:n_real].copy())
    return np.concatenate(parts)
