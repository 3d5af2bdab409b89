from dataclasses import replace
from textwrap import dedent
from types import SimpleNamespace

import libcst as cst
import pytest

from gradscope.recording.records import Site
from gradscope.source_edits.source_file import SourceFile, in_place_of, method_call, only
from gradscope.source_edits.source_files import SourceFiles, read_file
from gradscope.source_edits.text_edits import applied
from gradscope.source_edits.variables import spelled


def parsed(text):
    return SourceFile("/model.py", dedent(text))


def edited(source, changes):
    return applied(source.text, source.edits(changes))


@pytest.mark.parametrize(
    ("header", "expected"),
    [
        ("import torch", "torch.nn.ModuleList"),
        ("import torch.nn as nn", "nn.ModuleList"),
        ("from torch import nn as N", "N.ModuleList"),
        ("import torch\nfrom torch import nn", "nn.ModuleList"),
        ("from torch.nn import ModuleList as List", "List"),
        ("import torch.nn", "torch.nn.ModuleList"),
        ("from torch.nn import Module", None),
        ("from torch.nn import *", None),
        ("import numpy", None),
    ],
)
def test_a_name_is_spelled_as_the_file_imports_it(header, expected):
    assert spelled(parsed(header), "torch.nn.ModuleList") == expected


def test_qualified_names_follow_imports():
    source = parsed(
        """
        import torch.nn.functional as F
        def loss(F2, x):
            return F.softmax(x) + F2.softmax(x) + softmax(x)
        """
    )
    names = [source.qualified(call.func) for call in source.all(cst.Call)]
    assert names == ["torch.nn.functional.softmax", "", ""]


@pytest.mark.parametrize(
    ("statement", "line", "expected"),
    [
        ("a = f(x); b = g(y)", 1, ["f", "g"]),
        ("for x in f(y): g(x)", 1, ["f", "g"]),
        ("if f(x):\n    g(x)", 1, ["f"]),
        ("if f(x):\n    g(x)", 2, ["g"]),
        ("h = [\n    f(x),\n    g(x),\n]", 3, ["g"]),
        ("h = lambda x: f(x)", 1, ["f"]),
        ("while (\n    f(x)\n):\n    pass", 2, ["f"]),
    ],
)
def test_nodes_on_a_line(statement, line, expected):
    source = parsed(statement)
    assert [source.code(call.func) for call in source.on_line(line, cst.Call)] == expected


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("y = g(a + b)\n", "y = (a + b).squeeze(-1)\n"),
        ("y = g(x) * 2\n", "y = x.squeeze(-1) * 2\n"),
        ("y = (g(x))\n", "y = (x.squeeze(-1))\n"),
    ],
)
def test_replacing_keeps_the_meaning(before, after):
    source = parsed(before)
    call = only(source.all(cst.Call))
    new = method_call(call.args[0].value, "squeeze", "-1")
    assert edited(source, {call: in_place_of(source, call, new)}) == after


@pytest.mark.parametrize(
    ("before", "is_first", "after"),
    [
        ("def f(x):\n    # why\n    x[0] = 1  # here\n", True,
         "def f(x):\n    # why\n    new()\n    x[0] = 1  # here\n"),
        ("def f(x):\n\tx[0] = 1\n", True, "def f(x):\n\tnew()\n\tx[0] = 1\n"),
        ("def f(x): x[0] = 1\n", True, "def f(x): new(); x[0] = 1\n"),
        ("a = 1; x[0] = 1; b = 2\n", True, "a = 1; new(); x[0] = 1; b = 2\n"),
        ("a = 1; x[0] = 1\n", False, "a = 1; x[0] = 1; new()\n"),
        ("if a:\r\n  x[0] = 1\r\n", False, "if a:\r\n  x[0] = 1\r\n  new()\r\n"),
        ("x[0] = 1", False, "x[0] = 1\nnew()\n"),
    ],
)  # fmt: skip
def test_a_statement_is_inserted_at_the_indentation_of_another(before, is_first, after):
    source = parsed(before)
    statement = next(
        one for one in source.all(cst.Assign) if isinstance(one.targets[0].target, cst.Subscript)
    )
    new = cst.parse_statement("new()").body[0]
    insert = source.inserted_before if is_first else source.inserted_after
    assert edited(source, insert(statement, new)).rstrip("\n") == after.rstrip("\n")


def test_code_that_is_not_read_without_loss_is_rejected():
    for text in ("def f(:\n", "print 'x'\n", "x = (\n"):
        with pytest.raises(ValueError, match="cannot be parsed"):
            SourceFile("/model.py", text)


def test_an_edit_that_is_no_valid_code_is_none():
    source = parsed("y = f(x)\n")
    call = only(source.all(cst.Call))
    bare = cst.parse_expression("(a +\n b)").with_changes(lpar=[], rpar=[])
    assert source.edits({call: bare}) == ()


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
