"""A bill of materials in CycloneDX's JSON: which packages, which versions, under which licences.

Takes a folder of wheels or this Python's installed packages; gives components and the document. Reads metadata only.
Format: CycloneDX 1.5, https://cyclonedx.org/docs/1.5/json/
"""

from __future__ import annotations

import hashlib
import re
import zipfile
from collections.abc import Iterable
from dataclasses import dataclass
from email.message import Message
from email.parser import HeaderParser
from importlib import metadata
from pathlib import Path

_REQUIREMENT = re.compile(r"^\s*([A-Za-z0-9][A-Za-z0-9._-]*)\s*(?:\[([^\]]*)\])?")
_EXTRA = re.compile(r"extra\s*==\s*['\"]([^'\"]+)['\"]")
_LICENCE_PREFIX = "License :: "
_LONGEST_LICENCE = 60  # some packages put the whole text into the field


@dataclass(frozen=True, slots=True, order=True)
class Component:
    """One package. licence is its own words or "unknown"; sha256 is that of its wheel, where there is one."""

    name: str
    version: str
    licence: str
    homepage: str | None = None
    sha256: str | None = None

    @property
    def purl(self) -> str:
        """The package URL."""
        return f"pkg:pypi/{normal_name(self.name)}@{self.version}"


def normal_name(name: str) -> str:
    """A distribution's name as the package index spells it (PEP 503)."""
    return re.sub(r"[-_.]+", "-", name).lower()


def components_of_wheels(folder: Path) -> list[Component]:
    """One component a wheel, sorted by name."""
    found = []
    for wheel in folder.glob("*.whl"):
        with zipfile.ZipFile(wheel) as archive:
            name = next(entry for entry in archive.namelist() if entry.endswith(".dist-info/METADATA"))
            headers = HeaderParser().parsestr(archive.read(name).decode("utf-8", "replace"))
        found.append(_component(headers, hashlib.sha256(wheel.read_bytes()).hexdigest()))
    return sorted(found)


def components_installed(name: str, extras: Iterable[str]) -> list[Component]:
    """What a distribution needs with these extras, without itself; what is not installed is skipped."""
    seen: dict[str, Component] = {}
    visited: set[tuple[str, str]] = set()
    waiting = [(name, ""), *((name, extra) for extra in extras)]
    while waiting:
        current, extra = waiting.pop()
        if (normal_name(current), extra) in visited:
            continue
        visited.add((normal_name(current), extra))
        try:
            distribution = metadata.distribution(current)
        except metadata.PackageNotFoundError:
            continue
        seen[normal_name(current)] = _component(distribution.metadata, None)
        for line in distribution.requires or ():
            waiting += _wanted(line, extra)
    seen.pop(normal_name(name), None)
    return sorted(seen.values())


def bill_of_materials(name: str, version: str, components: Iterable[Component]) -> dict[str, object]:
    """The document. It has no time stamp and no serial number: equal contents give equal files."""
    return {
        "bomFormat": "CycloneDX",
        "specVersion": "1.5",
        "version": 1,
        "metadata": {"component": {"type": "application", "name": name, "version": version}},
        "components": [_entry(component) for component in components],
    }


def _wanted(requirement: str, extra: str) -> list[tuple[str, str]]:
    """The requirement and its own extras, if it belongs to this extra ("" is none)."""
    needs = _EXTRA.search(requirement.partition(";")[2])
    matched = _REQUIREMENT.match(requirement)
    if matched is None or (needs[1] if needs else "") != extra:
        return []
    inner = [part.strip() for part in (matched[2] or "").split(",") if part.strip()]
    return [(matched[1], each) for each in ("", *inner)]


def _component(headers: Message | metadata.PackageMetadata, sha256: str | None) -> Component:
    return Component(str(headers["Name"]), str(headers["Version"]), _licence(headers), _homepage(headers), sha256)


def _homepage(headers: Message | metadata.PackageMetadata) -> str | None:
    """The old field, else the link called home page, else the one called source or repository."""
    pairs = [line.split(",", 1) for line in headers.get_all("Project-URL") or [] if "," in line]
    links = {label.strip().lower().replace(" ", ""): link.strip() for label, link in pairs}
    named = (links[label] for label in ("homepage", "home", "source", "sourcecode", "repository") if label in links)
    return _field(headers, "Home-page") or next(named, None)


def _licence(headers: Message | metadata.PackageMetadata) -> str:
    """The expression if there is one, else the classifier, else the field's first words."""
    expression = _field(headers, "License-Expression")
    classifiers = [line for line in headers.get_all("Classifier") or [] if line.startswith(_LICENCE_PREFIX)]
    plain = (_field(headers, "License") or "").strip().splitlines()
    if expression:
        return expression
    if plain and len(plain) == 1 and len(plain[0]) <= _LONGEST_LICENCE:
        return plain[0]
    return classifiers[0].rpartition(" :: ")[2] if classifiers else "unknown"


def _field(headers: Message | metadata.PackageMetadata, name: str) -> str | None:
    found = headers.get_all(name)
    return str(found[0]) if found and str(found[0]) not in ("", "UNKNOWN") else None


def _entry(component: Component) -> dict[str, object]:
    entry: dict[str, object] = {
        "type": "library",
        "bom-ref": component.purl,
        "name": component.name,
        "version": component.version,
        "purl": component.purl,
        "licenses": [{"license": {"name": component.licence}}],
    }
    if component.sha256:
        entry["hashes"] = [{"alg": "SHA-256", "content": component.sha256}]
    if component.homepage:
        entry["externalReferences"] = [{"type": "website", "url": component.homepage}]
    return entry
