"""Policies: the weights, the thresholds and the tiers of a router, as data.

Takes a shipped policy's name or a TOML file, gives a checked `Policy`. Knows no prompt and no machine; the form of the
file is described in docs/routing.md.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib import resources
from pathlib import Path

from ... import config
from ...errors import SettingsError, UsageError
from .signals import NAMES
from .toml_table import TomlTable

TIERS = ("low", "medium", "high")
_CONTROLLER = re.compile(r"goodput|entropy|speckv|fixed:\d{1,2}")
_MAX_POLICY_BYTES = 1 << 20


@dataclass(frozen=True, slots=True)
class Tier:
    """Who answers: target (a variant), draft (a variant, "lookup", a chain "lookup+q4", "none"), controller."""

    target: str
    draft: str
    controller: str


@dataclass(frozen=True, slots=True)
class SiblingModel:
    """What a fit learned of one sibling alone: seconds per token, and its agreement as a line over the signals."""

    prefill_s_per_token: float
    decode_s_per_token: float
    agreement_bias: float
    agreement_weights: Mapping[str, float]


@dataclass(frozen=True, slots=True)
class LengthRouter:
    """The rival that looks at the length signal only; weight is 1, or -1 where longer prompts turned out easier."""

    weight: float
    medium: float
    high: float

    def tier_of(self, length: float) -> str:
        """The tier of a length signal."""
        score = self.weight * length
        return "low" if score < self.medium else "medium" if score < self.high else "high"


@dataclass(frozen=True, slots=True)
class Fitted:
    """Where a policy's numbers come from, and what a report needs to say what other routers would have done."""

    family: str
    n_prompts: int
    wanted_agreement: float
    verdict: str
    siblings: Mapping[str, SiblingModel]
    length_only: LengthRouter


@dataclass(frozen=True, slots=True)
class Policy:
    """score = bias + sum of weight x signal; low below `medium`, medium below `high`, high from there on.

    safe_tier answers prompts that the features cannot judge. residents_only: never a model that is not loaded already.
    """

    name: str
    about: str
    weights: Mapping[str, float]
    medium: float
    high: float
    tiers: Mapping[str, Tier]
    bias: float = 0.0
    safe_tier: str = "high"
    residents_only: bool = False
    fitted: Fitted | None = None
    source: str = field(default="", compare=False)

    @classmethod
    def load(cls, name_or_path: str | Path) -> Policy:
        """A shipped policy or one of the user's folder by name, or a .toml file. Raises UsageError, SettingsError."""
        text = str(name_or_path)
        if text in shipped_policies():
            return parse_policy(_shipped(text), text)
        if text in user_policies():
            return parse_policy(_read(user_policy_path(text)), text)
        path = Path(text).expanduser()
        if path.suffix != ".toml" and not path.is_file():
            raise UsageError(
                f"there is no policy '{text}'; there are {', '.join(policy_names())}, or give a .toml file"
            )
        return parse_policy(_read(path), str(path))

    def tier_of(self, score: float) -> str:
        """The tier of a score."""
        return "low" if score < self.medium else "medium" if score < self.high else "high"


def policy_names() -> list[str]:
    """Names that `Policy.load` knows: the shipped ones, then the user's."""
    shipped = shipped_policies()
    return shipped + [name for name in user_policies() if name not in shipped]


def shipped_policies() -> list[str]:
    """Names of the policies in the package."""
    folder = resources.files(__package__).joinpath("policies")
    return sorted(entry.name[:-5] for entry in folder.iterdir() if entry.name.endswith(".toml"))


def user_policies() -> list[str]:
    """Names of the policies in the user's data folder."""
    folder = user_policy_path("any").parent
    return sorted(path.stem for path in folder.glob("*.toml")) if folder.is_dir() else []


def user_policy_path(name: str) -> Path:
    """Where a user's policy of this name lives, there or not."""
    return config.data_folder().path / "policies" / f"{name}.toml"


def parse_policy(text: str, source: str) -> Policy:
    """Checks everything; the message names the source and the first wrong field. Raises SettingsError."""
    return _Reader(TomlTable.parse(text, f"policy {source}"), source).policy()


@dataclass(frozen=True, slots=True)
class _Reader:
    """Policy and its parts from one document."""

    table: TomlTable
    source: str

    def policy(self) -> Policy:
        table = self.table
        medium = table.number("thresholds.medium")
        high = table.number("thresholds.high")
        if medium > high:
            raise table.error("thresholds.medium", f"is {medium}, above thresholds.high {high}")
        safe = table.text("safe_tier", "high")
        if safe not in TIERS:
            raise table.error("safe_tier", f"is '{safe}'; it must be one of {', '.join(TIERS)}")
        return Policy(
            name=table.text("name"),
            about=table.text("about", ""),
            weights=self._signals("weights"),
            medium=medium,
            high=high,
            tiers={name: self._tier(name) for name in TIERS},
            bias=table.number("bias", 0.0),
            safe_tier=safe,
            residents_only=table.flag("residents_only"),
            fitted=self._fitted() if table.keys("fitted") else None,
            source=self.source,
        )

    def _tier(self, name: str) -> Tier:
        tier = Tier(*(self.table.text(f"tiers.{name}.{key}") for key in ("target", "draft", "controller")))
        if not _CONTROLLER.fullmatch(tier.controller):
            wanted = "goodput, entropy, speckv or fixed:N"
            raise self.table.error(f"tiers.{name}.controller", f"is '{tier.controller}'; it must be {wanted}")
        return tier

    def _fitted(self) -> Fitted:
        table = self.table
        length_only = [table.number(f"fitted.length_only.{name}") for name in ("weight", "medium", "high")]
        return Fitted(
            family=table.text("fitted.family"),
            n_prompts=int(table.number("fitted.n_prompts")),
            wanted_agreement=table.number("fitted.wanted_agreement"),
            verdict=table.text("fitted.verdict", ""),
            siblings={name: self._sibling(f"fitted.siblings.{name}") for name in table.keys("fitted.siblings")},
            length_only=LengthRouter(*length_only),
        )

    def _sibling(self, path: str) -> SiblingModel:
        return SiblingModel(
            prefill_s_per_token=self.table.number(f"{path}.prefill_s_per_token"),
            decode_s_per_token=self.table.number(f"{path}.decode_s_per_token"),
            agreement_bias=self.table.number(f"{path}.agreement_bias"),
            agreement_weights=self._signals(f"{path}.agreement_weights"),
        )

    def _signals(self, path: str) -> dict[str, float]:
        names = self.table.keys(path)
        unknown = sorted(set(names) - set(NAMES))
        if unknown:
            raise self.table.error(f"{path}.{unknown[0]}", f"is no signal; the signals are {', '.join(NAMES)}")
        return {name: self.table.number(f"{path}.{name}") for name in names}


def _shipped(name: str) -> str:
    return resources.files(__package__).joinpath("policies").joinpath(f"{name}.toml").read_text(encoding="utf-8")


def _read(path: Path) -> str:
    try:
        if path.stat().st_size > _MAX_POLICY_BYTES:
            raise SettingsError(f"{path} has {path.stat().st_size} bytes; a policy has at most {_MAX_POLICY_BYTES}")
        return path.read_text(encoding="utf-8")
    except OSError as error:
        raise SettingsError(f"policy {path} cannot be read: {error.strerror or error}") from error
    except UnicodeDecodeError as error:
        raise SettingsError(f"policy {path} is not UTF-8 (byte {error.start})") from error
