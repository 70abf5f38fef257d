"""The bundle: whole or not at all, only for machines like this one, installed without an index."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

from edge_specquant.bootstrap.engine.facts import Facts
from edge_specquant.bootstrap.engine.flags import EngineFlags, choose, needed_cpu_flags
from edge_specquant.bootstrap.release import bundle_install
from edge_specquant.bootstrap.release.bundle import BundleOrder, checksums, family_files, make_bundle
from edge_specquant.bootstrap.release.sbom import bill_of_materials, components_installed, components_of_wheels
from edge_specquant.errors import SetupError

# A project of one file whose wheel is made by itself, so that no build tool is needed.
BACKEND = '''
import zipfile
NAME = "edge_specquant-0.1.0-py3-none-any.whl"
INFO = "edge_specquant-0.1.0.dist-info/"
def prepare_metadata_for_build_wheel(folder, config_settings=None):
    import pathlib
    info = pathlib.Path(folder, INFO)
    info.mkdir()
    (info / "METADATA").write_text(METADATA)
    return INFO.rstrip("/")
METADATA = """Metadata-Version: 2.4
Name: edge-specquant
Version: 0.1.0
License-Expression: Apache-2.0
Requires-Dist: llama-cpp-python==0.3.36
"""
def build_wheel(folder, config_settings=None, metadata_directory=None):
    with zipfile.ZipFile(f"{folder}/{NAME}", "w") as wheel:
        wheel.writestr("edge_specquant/__init__.py", "")
        wheel.writestr("edge_specquant/config/__init__.py", "")
        wheel.writestr("edge_specquant/config/paths.py", open("edge_specquant/config/paths.py").read())
        wheel.writestr(INFO + "METADATA", METADATA)
        wheel.writestr(INFO + "WHEEL", "Wheel-Version: 1.0\\nRoot-Is-Purelib: true\\nTag: py3-none-any\\n")
        wheel.writestr(INFO + "RECORD", "")
    return NAME
'''
PATHS = (
    "import os\nfrom pathlib import Path\ndef families_dir():\n    return Path(os.environ['ESQ_TEST'], 'families')\n"
)
PROJECT = '[build-system]\nrequires = []\nbuild-backend = "backend"\nbackend-path = ["edge_specquant"]\n'


@pytest.fixture
def order(tmp_path: Path) -> BundleOrder:
    root = tmp_path / "clone"
    (root / "edge_specquant/config").mkdir(parents=True)
    (root / "edge_specquant/backend.py").write_text(BACKEND, encoding="utf-8")
    (root / "edge_specquant/config/paths.py").write_text(PATHS, encoding="utf-8")
    (root / "pyproject.toml").write_text(PROJECT, encoding="utf-8")
    engine = tmp_path / "llama_cpp_python-0.3.36-py3-none-any.whl"
    with zipfile.ZipFile(engine, "w") as wheel:
        info = "llama_cpp_python-0.3.36.dist-info/"
        wheel.writestr("llama_cpp/__init__.py", "")
        wheel.writestr(
            info + "METADATA", "Metadata-Version: 2.1\nName: llama_cpp_python\nVersion: 0.3.36\nLicense: MIT\n"
        )
        wheel.writestr(info + "WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        wheel.writestr(info + "RECORD", "")
    family = tmp_path / "tiny"
    family.mkdir()
    (family / "manifest.json").write_text("{}", encoding="utf-8")
    (family / "tiny-f16.gguf").write_bytes(os.urandom(5000))
    (family / ".proof.json").write_text("{}", encoding="utf-8")
    flags = EngineFlags(("-DGGML_NATIVE=OFF",), ())
    target = tmp_path / "out" / "bundle.tar"
    return BundleOrder(root, Path(sys.executable), engine, flags, (), family, target, links=tmp_path)


def unpack(order: BundleOrder, into: Path) -> Path:
    with tarfile.open(order.target) as tar:
        tar.extractall(into, filter="data") if hasattr(tarfile, "data_filter") else tar.extractall(into)
    return into / "bundle"


def run_installer(folder: Path, home: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """With an index that nobody can reach."""
    environment = {"PATH": os.environ["PATH"], "HOME": str(home), "ESQ_TEST": str(home)}
    environment["PIP_INDEX_URL"] = "http://127.0.0.1:9"
    command = [sys.executable, str(folder / "install.py"), "--into", str(home / "an app"), *arguments]
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=False)


def test_a_bundle_is_made_and_checked(order: BundleOrder, tmp_path: Path) -> None:
    make_bundle(order, tmp_path / "log")
    assert [path.name for path in order.target.parent.iterdir()] == ["bundle.tar"], "nothing is left beside it"
    folder, home = unpack(order, tmp_path / "there"), tmp_path / "home"
    inside = {path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()}
    assert {"install.py", "bundle.json", "SHA256SUMS", "sbom.cdx.json", "family/tiny/tiny-f16.gguf"} <= inside
    assert "family/tiny/.proof.json" not in inside, "what was proven here is not proven there"

    dry = run_installer(folder, home, "--dry-run")
    assert dry.returncode == 0 and "packages: edge-specquant 0.1.0" in dry.stdout and not home.exists()
    weights = folder / "family/tiny/tiny-f16.gguf"
    weights.write_bytes(weights.read_bytes()[:-1] + b"?")
    damaged = run_installer(folder, home, "--check")
    assert damaged.returncode == 1
    assert damaged.stderr == "error: family/tiny/tiny-f16.gguf is damaged; copy the archive again\n"


@pytest.mark.slow
def test_a_bundle_is_installed(order: BundleOrder, tmp_path: Path) -> None:
    make_bundle(order, tmp_path / "log")
    folder, home = unpack(order, tmp_path / "there"), tmp_path / "home"
    for _ in range(2):
        done = run_installer(folder, home)
        assert done.returncode == 0, done.stderr
        assert (home / "families/tiny/tiny-f16.gguf").read_bytes() == (tmp_path / "tiny/tiny-f16.gguf").read_bytes()
    assert "kept as it is" in done.stdout


def test_no_family_no_bundle(order: BundleOrder, tmp_path: Path) -> None:
    (tmp_path / "tiny/manifest.json").unlink()
    with pytest.raises(SetupError, match="is not a family"):
        make_bundle(order, tmp_path / "log")
    assert not order.target.exists()


def test_checksums_are_those_of_sha256sum(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "a/b c").write_bytes(b"x" * 10)
    assert checksums(tmp_path) == f"{hashlib.sha256(b'x' * 10).hexdigest()}  a/b c\n"
    (tmp_path / bundle_install.SUMS).write_text(checksums(tmp_path), encoding="utf-8")
    bundle_install.check_sums(tmp_path)
    (tmp_path / "wheels").mkdir()
    (tmp_path / "wheels/more.whl").write_bytes(b"")
    with pytest.raises(bundle_install.ProblemError, match=r"more\.whl in wheels is not in SHA256SUMS"):
        bundle_install.check_sums(tmp_path)
    (tmp_path / "a/b c").unlink()
    with pytest.raises(bundle_install.ProblemError, match="b c is missing"):
        bundle_install.check_sums(tmp_path)


ABOUT = {"python": "3.11", "platform": "linux-x86_64", "libc": ["glibc", "2.31"], "cpu_flags": ["avx2", "fma"]}
LIKE = {"python": "3.11", "platform": "linux-x86_64", "libc": ("glibc", "2.36"), "cpu_flags": ["avx2", "fma", "sse4_2"]}


@pytest.mark.parametrize(
    ("change", "word"),
    [
        ({}, None),
        ({"cpu_flags": None}, None),
        ({"python": "3.12"}, "Python 3.11 and this is 3.12"),
        ({"platform": "linux-aarch64"}, "linux-aarch64"),
        ({"libc": ("glibc", "2.4")}, "glibc 2.31 or newer"),
        ({"libc": ("", "")}, "another C library"),
        ({"cpu_flags": ["fma"]}, "lacks avx2"),
    ],
)
def test_another_machine_is_refused_with_the_difference(change: dict[str, object], word: str | None) -> None:
    problems = bundle_install.mismatches(ABOUT, {**LIKE, **change})
    assert (problems == []) if word is None else (len(problems) == 1 and word in problems[0])


def test_what_an_engine_needs_of_the_processor() -> None:
    flags = frozenset({"sse4_2", "avx", "avx2", "fma", "f16c", "bmi2"})
    chosen = choose(Facts("Linux", "x86_64", "cpu", flags))
    assert needed_cpu_flags(chosen) == flags
    assert "avx2" not in needed_cpu_flags(EngineFlags((*chosen.cmake_args, "-DGGML_AVX2=OFF"), ()))
    assert needed_cpu_flags(choose(Facts("Linux", "aarch64"))) == frozenset()


def test_only_what_may_travel_travels(order: BundleOrder) -> None:
    assert order.family is not None
    assert [path.name for path in family_files(order.family)] == ["manifest.json", "tiny-f16.gguf"]


def test_bill_of_materials(order: BundleOrder) -> None:
    assert order.links is not None
    components = components_of_wheels(order.links)
    document = bill_of_materials("edge-specquant", "0.1.0", components)
    (entry,) = json.loads(json.dumps(document))["components"]
    assert entry["purl"] == "pkg:pypi/llama-cpp-python@0.3.36"
    assert entry["licenses"] == [{"license": {"name": "MIT"}}]
    assert entry["hashes"][0]["content"] == hashlib.sha256(order.engine_wheel.read_bytes()).hexdigest()
    installed = {component.name for component in components_installed("pytest", [])}
    assert "pluggy" in installed and "pytest" not in installed
