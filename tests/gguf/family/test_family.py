"""A family is proven at load: mixed, changed or missing files are refused with the first difference."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path

import pytest

from edge_specquant.errors import FamilyError, UsageError, VocabularyError
from edge_specquant.gguf.convert.convert import convert, open_source, plan_conversion
from edge_specquant.gguf.family.family import Family, family_folder, family_names, remove_family
from edge_specquant.native.selftest.tiny import write_tiny_llama


@pytest.fixture(scope="module")
def made_once(tiny: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished family, to be copied: making one starts the quantizer twice."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("EDGE_SPECQUANT_HOME", str(tmp_path_factory.mktemp("made once")))
        return convert(plan_conversion(open_source(str(tiny)), "tiny", ["f16", "q4"])).folder


@pytest.fixture
def family(home: Path, made_once: Path) -> Family:
    del home
    return Family.open(shutil.copytree(made_once, family_folder("tiny")))


def test_open_by_name_folder_and_file(family: Family) -> None:
    assert family_names() == ["tiny"]
    for way in ("tiny", str(family.folder), family.folder):
        assert list(Family.open(way).variants) == ["f16", "q4"]
    single = Family.open(family.path("q4"))
    assert single.manifest is None
    assert single.path("q4") == family.path("q4")
    assert all(finding.ok for finding in single.verify())


def test_aliases_and_unknown_variants(family: Family) -> None:
    assert family.path("Q4_K_M") == family.path("q4")
    assert family.card("F16").weight_type_counts["F16"] > 0
    with pytest.raises(FamilyError, match="has no 'q8'; it has f16, q4"):
        family.path("q8")


def test_unknown_and_impossible_names(family: Family) -> None:
    with pytest.raises(FamilyError, match=r"no family 'nope' \(families: tiny\)"):
        Family.open("nope")
    for name in ("", "..", ".hidden", "a/b", "a\\b", "x\0", "x" * 200, " x"):
        with pytest.raises(UsageError):
            family_folder(name)
    with pytest.raises(FamilyError):
        Family.open("../" + family.name)


def test_a_changed_byte_is_refused_at_load_and_found_by_verify(family: Family) -> None:
    path = family.path("q4")
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    path.write_bytes(content)
    with pytest.raises(FamilyError, match="was changed: SHA-256"):
        Family.open("tiny").path("q4")
    findings = {finding.subject: finding for finding in family.verify()}
    assert findings["f16"].ok
    assert not findings["q4"].ok


def test_verify_hashes_again_even_when_the_time_stamp_lies(family: Family) -> None:
    path = family.path("q4")
    stat = path.stat()
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    path.write_bytes(content)
    os.utime(path, ns=(stat.st_atime_ns, stat.st_mtime_ns))
    assert [finding.ok for finding in family.verify()] == [True, False]


def test_a_sibling_of_another_size_or_missing(family: Family) -> None:
    path = family.path("q4")
    n_bytes = path.stat().st_size
    with path.open("ab") as file:
        file.write(b"\0")
    with pytest.raises(FamilyError, match=f"is {n_bytes + 1} bytes, the manifest says {n_bytes}"):
        family.path("q4")
    path.unlink()
    with pytest.raises(FamilyError, match="is missing"):
        family.path("q4")


def test_a_sibling_with_another_vocabulary_names_the_token(family: Family) -> None:
    path = family.path("q4")
    path.write_bytes(path.read_bytes().replace(b"<0x41>", b"<0xZZ>", 1))
    with pytest.raises(VocabularyError, match="token 68 is '<0x41>'"):
        family.path("q4")


def test_a_copied_family_is_proven_once_and_remembered(family: Family, tmp_path: Path) -> None:
    copy = tmp_path / "copy"
    shutil.copytree(family.folder, copy)
    for file in copy.iterdir():
        os.utime(file, (1, 1))
    opened = Family.open(copy)
    assert opened.path("q4") == copy / "tiny-q4.gguf"
    assert json.loads((copy / ".proof.json").read_text())["tiny-q4.gguf"][1] == 10**9


@pytest.mark.parametrize("file", ["../secret.gguf", "/etc/passwd", "..", "a\\b"])
def test_a_manifest_cannot_point_outside_its_folder(family: Family, file: str) -> None:
    path = family.folder / "manifest.json"
    document = json.loads(path.read_text())
    document["variants"]["q4"]["file"] = file
    path.write_text(json.dumps(document))
    with pytest.raises(FamilyError, match="not a plain file name"):
        Family.open("tiny")


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"format": 99}', '{"format": 1}', "\0"])
def test_a_damaged_manifest_is_one_sentence(family: Family, text: str) -> None:
    (family.folder / "manifest.json").write_text(text)
    with pytest.raises(FamilyError):
        Family.open("tiny")


def test_remove_deletes_the_folder_and_only_known_families(family: Family, tmp_path: Path) -> None:
    with pytest.raises(FamilyError, match="no family 'other'"):
        remove_family("other")
    write_tiny_llama(tmp_path / "keep.gguf")
    n_bytes, left = remove_family("tiny")
    assert n_bytes > 0
    assert left == []
    assert not family.folder.exists()
    assert family_names() == []


def test_a_path_that_is_no_file_says_what_it_is(home: Path, tmp_path: Path) -> None:
    del home
    (tmp_path / "folder.gguf").mkdir()
    (tmp_path / "link.gguf").symlink_to(tmp_path / "gone.gguf")
    said = {"x.gguf": "is not there;", "no/x.gguf": "nor is its folder", "folder.gguf": "a folder, no file"}
    for name, words in {**said, "link.gguf": r"a link to .*gone.gguf, which is not there"}.items():
        with pytest.raises(FamilyError, match=words):
            Family.open(tmp_path / name)
