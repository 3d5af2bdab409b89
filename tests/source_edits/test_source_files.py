from dataclasses import replace
from types import SimpleNamespace

import pytest

from gradscope.recording.records import Site
from gradscope.source_edits.source_file import SourceFile
from gradscope.source_edits.source_files import SourceFiles, read_file


def files_that_ran(*sites):
    return SourceFiles(SimpleNamespace(sites=sites, evidence_of=lambda kind: ()))


def site(path, line, source):
    return Site(file=str(path), line=line, function="f", source=source)


@pytest.mark.parametrize(
    ("content", "encoding"),
    [
        (b"x = 1\n", "utf-8"),
        ("\ufeffx = 'é'\r\n".encode(), "utf-8-sig"),
        ("# -*- coding: latin-1 -*-\nx = 'é'\n".encode("latin-1"), "iso-8859-1"),
    ],
)
def test_a_file_is_read_in_its_encoding_with_its_line_breaks(content, encoding, tmp_path):
    path = tmp_path / "model.py"
    path.write_bytes(content)
    read = read_file(path)
    assert read.encoding == encoding
    assert read.text.encode(read.encoding) == content
    assert SourceFile(str(path), read.text).module.code == read.text


@pytest.mark.parametrize("content", [b"\xff\xfe", b"# coding: nonsense\nx = 1\n"])
def test_a_file_that_is_no_text_is_not_read(content, tmp_path):
    path = tmp_path / "model.py"
    path.write_bytes(content)
    assert read_file(path) is None
    assert read_file(tmp_path / "missing.py") is None


def test_only_a_file_that_is_as_it_ran_is_edited(tmp_path):
    path = tmp_path / "model.py"
    path.write_text("a = 1\nb = 2\n")
    ran = site(path, 2, "b = 2")
    assert files_that_ran(ran).at(ran) is not None
    assert files_that_ran(ran, site(path, 1, "a = 0")).at(ran) is None
    assert files_that_ran(ran, site(path, 3, "c = 3")).at(ran) is None
    assert files_that_ran(replace(ran, source="")).at(ran) is None


def test_installed_files_cells_and_broken_code_are_not_edited(tmp_path):
    installed = tmp_path / "site-packages" / "library.py"
    installed.parent.mkdir()
    installed.write_text("a = 1\n")
    broken = tmp_path / "broken.py"
    broken.write_text("a = 1\ndef f(:\n")
    cell = tmp_path / "ipykernel_12"
    cell.write_text("a = 1\n")
    for path in (installed, broken, cell, "<ipython-input-3>"):
        ran = site(path, 1, "a = 1")
        assert files_that_ran(ran).at(ran) is None
    assert files_that_ran().at(None) is None
