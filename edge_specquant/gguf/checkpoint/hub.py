"""A hub id -> a local folder with the few files a conversion needs. The only part of this room that uses a network.

Takes `org/name` or `org/name@revision`, gives the snapshot folder of huggingface_hub's cache. Resumes broken downloads,
and works from the cache when there is no network.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ...errors import CheckpointError
from .checkpoint import INDEX_NAME, SMALL_FILES, read_json

_HUB_ID = re.compile(r"(?P<repo>[A-Za-z0-9][\w.\-]*/[A-Za-z0-9][\w.\-]*)(?:@(?P<revision>[\w.\-/]+))?")
_SMALL_FILES = (*SMALL_FILES, "quantize_config.json", INDEX_NAME)


@dataclass(frozen=True, slots=True)
class Snapshot:
    """A downloaded revision. `revision` is the commit when the cache says so; `note` tells of missing network."""

    folder: Path
    revision: str | None
    note: str | None = None


def parse_hub_id(text: str) -> tuple[str, str | None] | None:
    """(repository, revision) when the text can be a hub id, else None."""
    match = _HUB_ID.fullmatch(text)
    if match is None or ".." in text or text.endswith(".gguf"):
        return None
    return match["repo"], match["revision"]


def fetch(repo: str, revision: str | None, say: Callable[[str], None]) -> Snapshot:
    """Downloads (or finds) one revision. Raises CheckpointError in one sentence for whatever went wrong."""
    from huggingface_hub import constants

    say(f"asking the hub for {repo}")
    note = None
    offline = bool(constants.HF_HUB_OFFLINE)
    if not offline:
        try:
            _require_known(repo, revision)
        except _NoNetworkError as error:
            offline, note = True, f"the hub could not be reached ({error}): used the cached copy of {repo}"
    folder = _snapshot(repo, revision, say, offline=offline, unreachable=note is not None)
    commit = folder.name if re.fullmatch(r"[0-9a-f]{40}", folder.name) else revision
    return Snapshot(folder, commit, note)


class _NoNetworkError(Exception):
    """The hub did not answer; the cache may help."""


def _require_known(repo: str, revision: str | None) -> None:
    """Asks once: a missing network is told apart from a missing model. Raises CheckpointError, _NoNetworkError."""
    from huggingface_hub import HfApi
    from huggingface_hub.errors import HfHubHTTPError, RepositoryNotFoundError, RevisionNotFoundError

    try:
        HfApi().model_info(repo, revision=revision)
    except RepositoryNotFoundError as error:
        raise CheckpointError(f"the hub has no {repo}, or it is gated: accept its licence there and log in") from error
    except RevisionNotFoundError as error:
        raise CheckpointError(f"{repo} has no revision '{revision}'") from error
    except HfHubHTTPError as error:
        raise CheckpointError(f"the hub refused {repo}: {_first_line(error)}") from error
    except Exception as error:  # the client's own transport errors differ between its versions
        raise _NoNetworkError(_first_line(error)) from error


def _snapshot(repo: str, revision: str | None, say: Callable[[str], None], *, offline: bool, unreachable: bool) -> Path:
    """First the small files, then only the weights that the index names."""
    patterns = list(_SMALL_FILES)
    try:
        folder = _download(repo, revision, patterns, offline)
        if not (folder / "config.json").is_file():
            raise CheckpointError(f"{repo} has no config.json; it is no checkpoint that can be converted")
        weight_map = (read_json(folder / INDEX_NAME) or {}).get("weight_map", {})
        wanted = sorted({str(shard) for shard in weight_map.values()}) or ["model.safetensors"]
        say(f"fetching {len(wanted)} weight file{'s' if len(wanted) > 1 else ''} of {repo}")
        folder = _download(repo, revision, [*patterns, *wanted], offline)
    except _NotCachedError as error:
        why = "the hub cannot be reached" if unreachable else "this is offline mode (HF_HUB_OFFLINE)"
        raise CheckpointError(f"{repo} is not in the cache, and {why}") from error
    if not any((folder / name).is_file() for name in wanted):
        raise CheckpointError(_why_no_weights(repo, revision, offline))
    return folder


class _NotCachedError(Exception):
    """Asked for what is not on this disk."""


def _download(repo: str, revision: str | None, patterns: list[str], offline: bool) -> Path:
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import LocalEntryNotFoundError

    try:
        return Path(snapshot_download(repo, revision=revision, allow_patterns=patterns, local_files_only=offline))
    except Exception as error:  # the client's own transport errors differ between its versions
        if offline and isinstance(error, LocalEntryNotFoundError):
            raise _NotCachedError from error
        broken = f"fetching {repo} broke off: {_first_line(error)}; run the command again to go on"
        raise CheckpointError(broken) from error


def _why_no_weights(repo: str, revision: str | None, offline: bool) -> str:
    if offline:
        return f"the cache holds no weights of {repo}; fetch it once with a network"
    from huggingface_hub import list_repo_files

    names: list[Any] = list_repo_files(repo, revision=revision)
    pickled = [name for name in names if str(name).endswith((".bin", ".pt", ".pth", ".ckpt"))]
    if pickled:
        return (
            f"{repo} has its weights as pickle only ({pickled[0]}); a pickle file can run any program when it is "
            "opened, so it is refused: look for a safetensors revision"
        )
    ggufs = [name for name in names if str(name).endswith(".gguf")]
    if ggufs:
        return f"{repo} holds GGUF files ({ggufs[0]}); download one and give its path"
    return f"{repo} has no safetensors weights"


def _first_line(error: BaseException) -> str:
    return (str(error).strip() or type(error).__name__).splitlines()[0]
