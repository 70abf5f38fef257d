"""Setup: one sentence for each thing that is missing, nothing half, and a second run that does nothing."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
import zipfile
from pathlib import Path

import pytest

from edge_specquant.bootstrap import setup
from edge_specquant.bootstrap.commands import explain_failure, run_logged
from edge_specquant.bootstrap.engine.facts import Facts
from edge_specquant.bootstrap.engine.flags import EngineFlags
from edge_specquant.bootstrap.engine.wheel import EngineBuild, build_wheel, cached_wheel, describe_build
from edge_specquant.bootstrap.places import setup_cache
from edge_specquant.bootstrap.prerequisites import check_compilers, check_disk, check_python
from edge_specquant.errors import SetupError

ROOT = Path(__file__).parents[2]
BUILD = EngineBuild("1.2.3", EngineFlags(("-DA=ON",), ()), "machine")
RETRYING = "WARNING: Retrying after connection broken by 'NewConnectionError(...)'"
posix = pytest.mark.skipif(os.name != "posix", reason="needs a POSIX shell")


def fake_python(folder: Path, script: str) -> Path:
    """Stands in for `.venv/bin/python`; "$out" is the folder after -w."""
    program = folder / "python"
    head = '#!/bin/sh\nwhile [ "$1" != -w ]; do shift; done; out=$2\n'
    program.write_text(head + script, encoding="utf-8")
    program.chmod(0o755)
    return program


def args_in(wheel: Path) -> bytes:
    with zipfile.ZipFile(wheel) as archive:
        return archive.read("args")


def leftovers(cache: Path) -> list[str]:
    return sorted(str(path.relative_to(cache / "engine")) for path in (cache / "engine").rglob("*"))


@posix
def test_a_built_wheel_is_kept_and_found_again(tmp_path: Path) -> None:
    zip_code = "import os, sys, zipfile as z; z.ZipFile(sys.argv[1], 'w').writestr('args', os.environ['CMAKE_ARGS'])"
    script = f'mkdir "$out"; "{sys.executable}" -c "{zip_code}" "$out/engine.whl"; touch "$TMPDIR/rest"\n'
    python = fake_python(tmp_path, script)
    cache = tmp_path / "a cache"
    assert cached_wheel(BUILD, cache) is None
    wheel = build_wheel(BUILD, cache, python)
    assert wheel == cached_wheel(BUILD, cache) and args_in(wheel) == b"-DA=ON"
    assert leftovers(cache) == [BUILD.digest, f"{BUILD.digest}/engine.whl"]
    wheel.write_bytes(wheel.read_bytes()[:-30])
    assert cached_wheel(BUILD, cache) is None, "a damaged wheel is forgotten"
    assert leftovers(cache) == []


@posix
def test_a_failed_build_leaves_nothing_and_quotes_the_compiler(tmp_path: Path) -> None:
    script = 'mkdir "$out"; echo "a.cpp:3:1: error: no such thing"; echo "ERROR: Failed"; exit 1\n'
    python = fake_python(tmp_path, script)
    with pytest.raises(SetupError, match=r"a\.cpp:3:1: error: no such thing \(log: .*engine-build\.log\)"):
        build_wheel(BUILD, tmp_path / "cache", python)
    assert leftovers(tmp_path / "cache") == []


@posix
def test_an_interrupt_ends_the_whole_tree_and_leaves_nothing(tmp_path: Path) -> None:
    alive = tmp_path / "grandchild"
    python = fake_python(tmp_path, f"(sleep 600 & echo $! > '{alive}.part'; mv '{alive}.part' '{alive}'; wait)\n")
    code = (
        "import sys; from pathlib import Path; from tests_build import BUILD, build_wheel;"
        f"build_wheel(BUILD, Path({str(tmp_path / 'cache')!r}), Path({str(python)!r}))"
    )
    helper = tmp_path / "tests_build.py"
    helper.write_text(
        "from edge_specquant.bootstrap.engine.wheel import EngineBuild, build_wheel\n"
        "from edge_specquant.bootstrap.engine.flags import EngineFlags\n"
        "BUILD = EngineBuild('1', EngineFlags(('-DA=ON',), ()), 'm')\n"
    )
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join((str(ROOT), str(tmp_path)))}
    setup_process = subprocess.Popen([sys.executable, "-c", code], env=environment, stderr=subprocess.DEVNULL)
    while not alive.exists():
        assert setup_process.poll() is None
        time.sleep(0.02)
    setup_process.send_signal(signal.SIGINT)
    assert setup_process.wait(timeout=60) != 0
    assert leftovers(tmp_path / "cache") == []
    assert not is_running(int(alive.read_text()))


def is_running(pid: int) -> bool:
    """False too for a process that has ended and waits to be collected by init."""
    for _ in range(100):
        try:
            os.kill(pid, 0)
            if sys.platform == "linux" and ") Z" in Path(f"/proc/{pid}/stat").read_text(encoding="utf-8"):
                return False
        except (ProcessLookupError, FileNotFoundError):
            return False
        time.sleep(0.05)
    return True


def test_digest_changes_with_all_that_matters_and_with_nothing_else() -> None:
    def digest(version: str = "1", args: tuple[str, ...] = ("-DA=ON",), bound: bool = False, model: str = "x") -> str:
        facts = Facts("Linux", "x86_64", model)
        return describe_build(version, EngineFlags(args, ("why",), bound), facts).digest

    assert digest() == digest(model="y") and digest(bound=True) != digest(bound=True, model="y")
    assert len({digest(), digest(version="2"), digest(args=("-DA=OFF",)), digest(bound=True)}) == 4


@pytest.mark.parametrize(
    ("log", "said"),
    [
        (f"{RETRYING}\nERROR: No matching distribution found", "cannot be reached"),
        (f"{RETRYING}\nx.c:1: fatal error: y.h: No such file\nERROR: Failed building wheel for x", "y.h"),
        ("gcc: error writing: No space left on device\nERROR: Failed", "disk is full"),
        ("CMake Error at CMakeLists.txt:1: no\nERROR: Failed building wheel for x", "CMake Error at"),
        ("something\nERROR: pip says why\ntrailer", "ERROR: pip says why"),
        ("", "it said nothing"),
    ],
)
def test_a_failure_is_one_sentence(log: str, said: str) -> None:
    text = explain_failure(log, "building", Path("x.log"))
    assert said in text and text.endswith("(log: x.log)") and "\n" not in text


def test_a_program_that_cannot_start_is_named(tmp_path: Path) -> None:
    with pytest.raises(SetupError, match=r"testing: .*no-such-program could not be started"):
        run_logged([str(tmp_path / "no-such-program")], tmp_path / "log", doing="testing")


def test_no_network_is_said(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "pip", "download", "--no-cache-dir", "--retries", "1", "--isolated"]
    command += ["--index-url", "http://127.0.0.1:9/simple", "-d", str(tmp_path), "edge-specquant-absent"]
    with pytest.raises(SetupError, match="the package index cannot be reached"):
        run_logged(command, tmp_path / "log", doing="downloading")


def test_no_compiler_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert check_compilers()
    for variable in ("CC", "CXX"):
        monkeypatch.delenv(variable, raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(SetupError, match="no C compiler"):
        check_compilers()


@posix
def test_a_compiler_without_headers_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    compiler = tmp_path / "cc"
    compiler.write_text("#!/bin/sh\necho 'a.c:1: fatal error: stdint.h' >&2; exit 1\n")
    compiler.chmod(0o755)
    monkeypatch.setenv("CC", str(compiler))
    with pytest.raises(SetupError, match=r"cannot compile a small program \(a\.c:1: fatal error: stdint\.h\)"):
        check_compilers()


def test_disk_and_python(tmp_path: Path) -> None:
    assert "free" in check_disk(tmp_path / "not" / "yet", 1, "testing")
    with pytest.raises(SetupError, match=r"testing needs 1000000000\.0 GB"):
        check_disk(tmp_path / "not" / "yet", 10**18, "testing")
    assert check_python().startswith("Python 3.")


@pytest.mark.parametrize("version", [(3, 9, 18), (2, 7, 18)])
def test_an_old_python_is_refused(monkeypatch: pytest.MonkeyPatch, version: tuple[int, int, int]) -> None:
    monkeypatch.setattr(sys, "version_info", version)
    with pytest.raises(SetupError, match=r"too old; install Python 3\.10 to 3\.13"):
        check_python()


def test_cache_places(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EDGE_SPECQUANT_HOME", str(tmp_path / "own home"))
    assert setup_cache() == tmp_path / "own home" / "cache"
    (tmp_path / "file").touch()
    monkeypatch.setenv("EDGE_SPECQUANT_HOME", str(tmp_path / "file"))
    assert setup_cache().is_dir(), "an unusable home falls back to a temporary folder"
    if sys.platform == "linux":
        monkeypatch.delenv("EDGE_SPECQUANT_HOME")
        monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
        assert setup_cache() == tmp_path / "xdg" / "edge_specquant"


def test_the_pinned_version_has_one_place(tmp_path: Path) -> None:
    assert setup.engine_version(ROOT) in (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    (tmp_path / "pyproject.toml").write_text("[project]\n")
    with pytest.raises(SetupError, match="does not pin"):
        setup.engine_version(tmp_path)


@posix
def test_a_second_run_does_nothing_and_remembers_what_the_first_was_asked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "pyproject.toml").write_text('dependencies = ["llama-cpp-python==9.9"]\n')
    python = setup.venv_python(tmp_path / ".venv")
    python.parent.mkdir(parents=True)
    installs: list[Path] = []

    def install(root: Path, *rest: object) -> None:
        del rest
        installs.append(root)

    monkeypatch.setattr(setup, "_make_venv", lambda *_: None)
    monkeypatch.setattr(setup, "_install", install)
    monkeypatch.setattr(setup, "_works", lambda *_: True)
    assert setup.prepare(tmp_path, ("demo", "dev"), rpc=True) == python
    capsys.readouterr()
    assert setup.prepare(tmp_path, ("demo",)) == python
    assert len(installs) == 1 and "nothing to do" in capsys.readouterr().out
    stamp = json.loads((tmp_path / ".venv" / "edge-specquant-setup.json").read_text())
    assert stamp["rpc"] is True and stamp["extras"] == ["demo", "dev"]
    (tmp_path / "pyproject.toml").write_text('dependencies = ["llama-cpp-python==9.10"]\n')
    setup.prepare(tmp_path, ())
    setup.prepare(tmp_path, (), rebuild=True)
    assert len(installs) == 3


def test_an_interrupted_install_is_not_taken_for_done(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "pyproject.toml").write_text('dependencies = ["llama-cpp-python==9.9"]\n')
    setup.venv_python(tmp_path / ".venv").parent.mkdir(parents=True)

    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(setup, "_make_venv", lambda *_: None)
    monkeypatch.setattr(setup, "_works", lambda *_: True)
    monkeypatch.setattr(setup, "_install", lambda *_: None)
    setup.prepare(tmp_path, ())
    monkeypatch.setattr(setup, "_install", interrupted)
    with pytest.raises(KeyboardInterrupt):
        setup.prepare(tmp_path, ("demo",))
    assert not (tmp_path / ".venv" / "edge-specquant-setup.json").exists()


@pytest.mark.parametrize(("n_loads_failing", "n_builds"), [(0, 0), (1, 0), (2, 1), (3, 1)])
def test_an_engine_that_does_not_load_is_installed_again_then_built_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, n_loads_failing: int, n_builds: int
) -> None:
    wheel = tmp_path / "engine" / BUILD.digest / "engine.whl"
    wheel.parent.mkdir(parents=True)
    zipfile.ZipFile(wheel, "w").close()
    loads, builds, installs = [False] * n_loads_failing, list[str](), list[str]()

    def build(*_: object) -> Path:
        builds.append("built")
        return wheel

    monkeypatch.setattr(setup, "_works", lambda *_: loads.pop(0) if loads else True)
    monkeypatch.setattr(setup, "_pip", lambda _python, _cache, doing, *_, **__: installs.append(doing))
    monkeypatch.setattr(setup, "build_wheel", build)
    stamp = setup.Stamp(BUILD.digest, "", ("demo",), False)
    if n_loads_failing == 3:
        with pytest.raises(SetupError, match="built but does not load"):
            setup._install(tmp_path, tmp_path / "python", tmp_path, BUILD, stamp)
        assert not wheel.exists(), "a wheel that does not load must not be offered again"
    else:
        setup._install(tmp_path, tmp_path / "python", tmp_path, BUILD, stamp)
    assert len(builds) == n_builds
    assert installs.count("installing the engine") == min(n_loads_failing, 2)


def test_engine_flags_prints_one_line_from_any_folder(tmp_path: Path) -> None:
    command = [sys.executable, str(ROOT / "scripts" / "engine-flags"), "--explain", "--rpc"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=True)
    assert done.stdout.startswith("-DLLAVA_BUILD=OFF ") and done.stdout.count("\n") == 1
    assert "-DGGML_RPC=ON" in done.stdout and "RPC: asked for" in done.stderr
