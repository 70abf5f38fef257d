"""Settings: file < environment < flags, each value's origin known, every mistake named; edits touch one line only."""

from __future__ import annotations

import json
import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from edge_specquant.cli.main import main
from edge_specquant.config import Settings, load_settings, settings_path
from edge_specquant.config.edit import with_value, without_value
from edge_specquant.config.load import known_key, parse_toml
from edge_specquant.config.settings import keys
from edge_specquant.errors import SettingsError
from edge_specquant.params import SamplingParams, SpeculationParams

FILE = Path("settings.toml")


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("EDGE_SPECQUANT_HOME", str(tmp_path))
    return tmp_path


def written(home: Path, text: str) -> Path:
    path = home / "settings.toml"
    path.write_bytes(text.encode())
    return path


def test_without_a_file_all_is_default_and_defaults_agree_with_the_params(home: Path) -> None:
    loaded = load_settings(environment={})
    assert loaded.settings == Settings()
    assert set(loaded.origins.values()) == {"default"} and loaded.path == home / "settings.toml"
    chat, sampling, speculation = Settings().chat, SamplingParams(), SpeculationParams()
    for name in (entry.name for entry in keys() if entry.section == "chat"):
        for params in (sampling, speculation):
            if hasattr(params, name):
                assert getattr(chat, name) == getattr(params, name), name


def test_flags_win_over_the_environment_and_that_over_the_file(home: Path) -> None:
    path = written(home, "chat.top_k = 7\n\n[engine]\nn_ctx = 1\nn_threads = 1\nn_batch = 1 # small\n")
    environment = {"EDGE_SPECQUANT_ENGINE_N_CTX": "2", "EDGE_SPECQUANT_ENGINE_N_THREADS": "2", "OTHER": "x"}
    loaded = load_settings({"engine.n_ctx": 3, "engine.rpc": None}, environment=environment)
    engine = loaded.settings.engine
    assert (engine.n_ctx, engine.n_threads, engine.n_batch, engine.rpc) == (3, 2, 1, None)
    assert loaded.settings.chat.top_k == 7
    assert loaded.origins["engine.n_ctx"] == "flag"
    assert loaded.origins["engine.n_threads"] == "env EDGE_SPECQUANT_ENGINE_N_THREADS"
    assert loaded.origins["engine.n_batch"] == f"{path}:6"
    assert loaded.origins["chat.top_k"] == f"{path}:1"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[chat]\n\ntemprature = 1.0", r":3: .*did you mean 'chat.temperature'"),
        ("[chta]\nseed = 1", "did you mean 'chat'"),
        ("seed = 1", "no section 'seed'"),
        ("chat = 1", r"write \[chat\]"),
        ("[chat]\ntemperature = 'hot'", r":2: chat.temperature is 'hot'; it must be a number"),
        ("[chat]\nseed = 1.5", "must be a whole number"),
        ("[chat]\nseed = true", "must be a whole number"),
        ("[chat]\ntemperature = nan", "must be a number"),
        ("[chat]\nsystem = 1", "must be text"),
        ("[store]\nenabled = 'yes'", "must be true or false"),
        ("[log]\nlevel = 'warn'", "did you mean 'warning'"),
        ("[server]\napi_key = 12345", r"\(hidden\)"),
        ("[chat]\nseed = 1\nseed = 2", "not TOML"),
        ("[chat\n", "not TOML"),
        ("x = " + "[" * 20_000, "not TOML"),
    ],
)
def test_a_mistake_in_the_file_is_named_with_its_place(home: Path, text: str, message: str) -> None:
    path = written(home, text)
    with pytest.raises(SettingsError, match=message) as caught:
        load_settings(environment={})
    assert str(path) in str(caught.value) and "12345" not in str(caught.value)


@pytest.mark.parametrize(
    ("name", "word", "message"),
    [
        ("EDGE_SPECQUANT_CHAT_TEMPRATURE", "1", "did you mean 'EDGE_SPECQUANT_CHAT_TEMPERATURE'"),
        ("EDGE_SPECQUANT_CHAT_SEED", "many", "EDGE_SPECQUANT_CHAT_SEED: chat.seed is 'many'"),
        ("EDGE_SPECQUANT_STORE_ENABLED", "maybe", "true or false"),
    ],
)
@pytest.mark.usefixtures("home")
def test_a_mistake_in_the_environment_is_named(name: str, word: str, message: str) -> None:
    with pytest.raises(SettingsError, match=message):
        load_settings(environment={name: word})


@pytest.mark.usefixtures("home")
def test_environment_words_are_read_by_type_and_strangers_are_left_alone() -> None:
    environment = {
        "EDGE_SPECQUANT_STORE_ENABLED": "Off",
        "EDGE_SPECQUANT_CHAT_TEMPERATURE": "1",
        "EDGE_SPECQUANT_CHAT_SYSTEM": "[bold] 10",
        "EDGE_SPECQUANT_CHAT_SEED": "",
        "EDGE_SPECQUANT_HOME": "/x",
        "EDGE_SPECQUANT_PYTHON": "python3",
    }
    read = load_settings(environment=environment).settings
    assert (read.store.enabled, read.chat.temperature, read.chat.system, read.chat.seed) == (
        False,
        1.0,
        "[bold] 10",
        None,
    )
    with pytest.raises(SettingsError, match=r"chat\.seed"):
        load_settings({"chat.sede": 1}, environment={})


@pytest.mark.parametrize("content", [b"\xff\xfe", b"\xef\xbb\xbf[chat]\r\nseed = 4\r\n"])
def test_encodings_of_the_file(home: Path, content: bytes) -> None:
    (home / "settings.toml").write_bytes(content)
    if content[0] == 0xFF:
        with pytest.raises(SettingsError, match="UTF-8"):
            load_settings(environment={})
    else:
        assert load_settings(environment={}).settings.chat.seed == 4


NO_HOME = """
import os
os.environ.clear()
from edge_specquant.config import load_settings, store_path
loaded = load_settings()
print(loaded.settings.chat.top_k, loaded.path.is_absolute(), store_path().is_absolute())
"""


def test_settings_load_without_any_environment() -> None:
    done = subprocess.run([sys.executable, "-c", NO_HOME], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["40", "True", "True"]


def run(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    try:
        main(["config", *arguments])
    except SystemExit as leaving:
        assert not leaving.code, capsys.readouterr().err
    return capsys.readouterr().out


def test_show_says_value_and_origin_and_hides_secrets(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = written(home, '[server]\napi_key = "s3cret"\n[chat]\nsystem = "\\u001b[31m[bold]"\n')
    out = run(capsys, "show")
    assert "s3cret" not in out and "\x1b" not in out and "[bold]" in out
    (line,) = [line for line in out.splitlines() if line.startswith("server.api_key")]
    assert line.endswith(f"{path}:2")
    assert len(out.splitlines()) == len(list(keys()))
    document = json.loads(run(capsys, "show", "server", "--json", "--secrets"))
    assert document["settings"]["server.api_key"]["value"] == "s3cret"
    assert document["settings"]["server.port"]["origin"] == "default"
    assert run(capsys, "show", "chat.seed").split() == ["chat.seed", "-", "default"]


@pytest.mark.usefixtures("home")
def test_set_and_unset_change_one_line_and_keep_the_file_private(capsys: pytest.CaptureFixture[str]) -> None:
    run(capsys, "set", "server.api_key", "abc")
    path = Path(run(capsys, "path").strip())
    assert path == settings_path()
    assert stat.S_IMODE(path.stat().st_mode) == 0o600 or sys.platform == "win32"
    run(capsys, "set", "chat.temperature", "0.5")
    run(capsys, "set", "engine.n_gpu_layers", "-1")
    assert load_settings(environment={}).settings.chat.temperature == 0.5
    run(capsys, "unset", "chat.temperature")
    loaded = load_settings(environment={})
    assert loaded.origins["chat.temperature"] == "default" and loaded.settings.server.api_key == "abc"
    with pytest.raises(SystemExit):
        main(["config", "set", "chat.temperature", "hot"])
    assert "must be a number" in capsys.readouterr().err


COMMENTED = """# my settings
[chat]  # who answers
temperature = 0.7   # warm
system = "a # b"# c
seed=3

# the end
[log]
level = 'info'
"""


def test_comments_and_order_survive_an_edit() -> None:
    text = with_value(COMMENTED, known_key("chat.system"), 'say "#"', FILE)
    assert text == COMMENTED.replace('system = "a # b"# c', 'system = "say \\"#\\"" # c')
    text = with_value(COMMENTED, known_key("chat.temperature"), 0.2, FILE)
    assert text == COMMENTED.replace("0.7   # warm", "0.2 # warm")
    text = with_value(COMMENTED, known_key("chat.top_k"), 1, FILE)
    assert text == COMMENTED.replace("# who answers\n", "# who answers\ntop_k = 1\n")
    assert without_value(COMMENTED, known_key("chat.seed"), FILE) == COMMENTED.replace("seed=3\n", "")
    assert without_value(COMMENTED, known_key("chat.top_k"), FILE) == COMMENTED


def test_an_edit_that_is_not_safe_is_refused() -> None:
    lines = '[chat]\nsystem = """one\nseed = 5\n"""\n'
    with pytest.raises(SettingsError, match="by hand"):
        with_value(lines, known_key("chat.system"), "two", FILE)
    with pytest.raises(SettingsError, match="by hand"):
        without_value("chat = { seed = 1 }\n", known_key("chat.seed"), FILE)


values = {"bool": st.booleans(), "int": st.integers(-(1 << 40), 1 << 40), "str": st.text(max_size=10)}
values["float"] = st.floats(allow_nan=False, allow_infinity=False)
changes = st.sampled_from(list(keys())).flatmap(
    lambda key: st.tuples(st.just(key), st.one_of([values[name] for name in sorted(key.types - {"None"})]))
)


@given(st.lists(changes, max_size=8), st.sampled_from(["", COMMENTED, "\r\n[chat]\r\nseed = 1", "server.port = 1\n"]))
@settings(max_examples=150, deadline=None)
def test_any_series_of_edits_reads_back_as_meant(series: list, text: str) -> None:
    expected = parse_toml(text, FILE)
    for key, value in series:
        try:
            text = with_value(text, key, value, FILE)
        except SettingsError:
            assert text.startswith("server.port")  # a dotted section cannot be opened again below
            continue
        expected.setdefault(key.section, {})[key.name] = value
    assert parse_toml(text, FILE) == expected


@pytest.mark.parametrize("command", [["history", "list"], ["run", "demo", "hi"], ["config", "show"], ["plan", "demo"]])
def test_without_a_folder_to_write_to_there_is_a_sentence_and_nothing_elsewhere(
    tmp_path: Path, command: list[str]
) -> None:
    (tmp_path / "file").touch()
    (tmp_path / "temporary").mkdir()
    names = ("EDGE_SPECQUANT_HOME", "XDG_DATA_HOME", "XDG_CONFIG_HOME", "LOCALAPPDATA")
    environment = {name: value for name, value in os.environ.items() if name not in names}
    environment |= {"HOME": str(tmp_path / "file"), "TMPDIR": str(tmp_path / "temporary")}
    done = subprocess.run(
        [sys.executable, "-m", "edge_specquant", *command], capture_output=True, text=True, env=environment, check=False
    )
    if command[0] != "config":  # it only reads
        assert done.returncode == 1 and "set EDGE_SPECQUANT_HOME to a folder" in done.stderr
        assert len(done.stderr.strip().splitlines()) == 1
    assert "Traceback" not in done.stderr
    assert list((tmp_path / "temporary").iterdir()) == []
