from dataclasses import replace

import pytest

from gradscope.recording.records import Site
from gradscope.report.ci.locations import (
    bare_name,
    named_file,
    path_within,
    placement,
    target_location,
    unrecorded_location,
)
from tests.report.ci.conftest import ROOT, finding, recording_of_sample, related, site


@pytest.mark.parametrize(
    ("file", "repository", "path"),
    [
        ("/repo/src/a.py", "/repo", "src/a.py"),
        ("/repo/a.py", "/repo/", "a.py"),
        ("/repo/src/../b.py", "/repo", "b.py"),
        ("/repo/../other/b.py", "/repo", None),
        ("/repository/a.py", "/repo", None),
        ("/repo", "/repo", None),
        ("/a.py", "/", "a.py"),
        ("<stdin>", "/repo", None),
        ("src/a.py", "/repo", None),
        ("/repo/a.py", "", None),
        ("/repo/.venv/lib/python3.11/site-packages/torch/a.py", "/repo", None),
        ("/repo/dist-packages/a.py", "/repo", None),
        # A repository may itself be among installed packages.
        ("/lib/site-packages/mine/a.py", "/lib/site-packages/mine", "a.py"),
        ("/repo/größe/a b.py", "/repo", "größe/a b.py"),
        ("/repo/a\\b.py", "/repo", "a\\b.py"),
        ("C:\\repo\\src\\a.py", "C:\\repo", "src/a.py"),
        ("c:\\Repo\\src\\a.py", "C:\\repo", "src/a.py"),
        ("D:\\repo\\a.py", "C:\\repo", None),
        ("\\\\server\\share\\repo\\a.py", "\\\\server\\share\\repo", "a.py"),
    ],
)
def test_paths_are_relative_to_the_repository(file, repository, path):
    assert path_within(file, repository) == path


@pytest.mark.parametrize(
    ("target", "name"),
    [
        ("model.py", "model.py"),
        ("src/model.py:Net(hidden='a:b')", "src/model.py"),
        ("package.module", "package.module"),
        ("package.module:Net(8)", "package.module"),
        ("C:\\repo\\model.py:Net", "C:\\repo\\model.py"),
        ("C:\\repo\\model", "C:\\repo\\model"),
        ("tests/test_a.py::test_b", "tests/test_a.py"),
        ("Net", "Net"),
        ("", ""),
    ],
)
def test_target_without_its_expression(target, name):
    assert bare_name(target) == name


@pytest.mark.parametrize(
    ("name", "root", "file"),
    [
        ("model.py:Net", "/repo", "model.py"),
        ("model.py", "/repo/sub", "sub/model.py"),
        ("../model.py", "/repo/sub", "model.py"),
        ("../../model.py", "/repo/sub", None),
        ("/repo/x/model.py", "/repo/sub", "x/model.py"),
        ("package.net:build()", "/repo/sub", "src/package/net.py"),
        ("package", "/repo", "src/package/__init__.py"),
        ("et", "/repo", None),
        ("gpt", "/repo", None),
    ],
)
def test_file_of_a_target(name, root, file):
    record = replace(recording_of_sample().target, name=name, root=root, repository="/repo")
    files = ("/elsewhere/gpt.py", "/repo/src/package/net.py", "/repo/src/package/__init__.py")
    sites = tuple(Site(file=one, line=3, function="f", source="") for one in files)
    assert named_file(record, sites) == file


@pytest.mark.parametrize(
    ("name", "path"),
    [("a/b.py:Net", "a/b.py"), ("./b.py", "b.py"), ("../b.py", "b.py"), ("/x/b.py", "b.py")],
)
def test_file_of_a_target_that_was_not_recorded(name, path):
    assert unrecorded_location(name, None).path == path


@pytest.mark.parametrize(
    ("name", "path"), [("b.py:Net", "src/b.py"), ("../b.py", "b.py"), ("../../b.py", "b.py")]
)
def test_target_beside_another_knows_the_repository(name, path):
    beside = replace(recording_of_sample().target, root="/repo/src", repository="/repo")
    assert unrecorded_location(name, beside).path == path


def in_package(**changes):
    path = "/env/lib/python3.11/site-packages/lib/net.py"
    return finding(location=Site(file=path, line=9, function="f", source=""), **changes)


def test_line_in_the_repository_is_shown_as_it_is():
    shown = placement(finding(related=(related(line=4),)), recording_of_sample())
    assert (shown.location.text, shown.remark, shown.is_stand_in) == ("src/model.py:12", "", False)
    assert [one.location.text for one in shown.related] == ["src/model.py:4"]


def test_related_line_of_the_repository_comes_before_that_of_a_package():
    one = in_package(related=(related("/env/site-packages/x.py"), related(line=4), related(line=5)))
    shown = placement(one, recording_of_sample())
    assert shown.location.text == "src/model.py:4"
    assert shown.cause is not None and shown.cause.text == "lib/net.py:9"
    assert not shown.is_stand_in
    assert shown.remark == (
        "the cause is lib/net.py:9, outside the repository; here: encoder is made here"
    )
    assert [one.location.text for one in shown.related] == ["x.py:40", "src/model.py:5"]


def test_line_that_made_the_module_comes_next():
    recording = recording_of_sample()
    module = next(one for one in recording.modules if one.path == "encoder.0")
    shown = placement(in_package(modules=("encoder.0",)), recording)
    assert shown.location.path == "sample_models/gradient_cut.py"
    assert module.site is not None
    assert shown.location.line == recording.sites[module.site].line
    assert shown.remark.endswith("here: encoder.0 is made")


def test_target_stands_in_where_nothing_else_is_in_the_repository():
    shown = placement(in_package(), recording_of_sample())
    assert shown.is_stand_in
    assert shown.location.text == "sample_models/gradient_cut.py:1"


def test_real_line_is_kept_where_even_the_target_is_outside():
    recording = recording_of_sample()
    target = replace(recording.target, repository="/elsewhere", root="/elsewhere")
    recording = replace(recording, target=replace(target, name=f"{ROOT}/sample_models/x.py"))
    shown = placement(finding(), recording)
    assert shown.location.text == "model.py:12"
    assert shown.is_stand_in and not shown.location.in_repository
    nothing = placement(finding(location=None), recording)
    assert nothing.location.text == "x.py:1"


def test_target_without_a_file_has_its_first_line_in_the_repository():
    recording = recording_of_sample()
    recording = replace(recording, target=replace(recording.target, name="Net"))
    assert target_location(recording).text == "sample_models/gradient_cut.py:1"


def test_lines_begin_at_one():
    assert placement(finding(location=site(0)), recording_of_sample()).location.line == 1
