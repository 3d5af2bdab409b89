from pathlib import Path

import pytest

from gradscope.cli.output import Destination, wanted_output
from gradscope.errors import GradscopeError


def wanted(form=None, file="-", *, is_opened=False, **given):
    return wanted_output(form, file, is_opened=is_opened, subject="src/model.py:Net(4)", **given)


@pytest.mark.parametrize(
    ("form", "file", "default", "chosen"),
    [
        (None, "-", None, "full"),
        (None, "-", "concise", "concise"),
        (None, "report.html", None, "html"),
        (None, "report.HTM", "concise", "html"),
        (None, "html", None, "full"),
        (None, "report.txt", "concise", "concise"),
        ("json", "report.html", None, "json"),
        ("html", "page", None, "html"),
        (None, "report.json", None, "json"),
        (None, "report.md", None, "markdown"),
        (None, "report.json", "gitlab", "gitlab"),
    ],
)
def test_the_option_then_the_file_then_the_configuration(form, file, default, chosen):
    assert wanted(form, file, default=default).form == chosen


def test_file_of_a_format_that_reports_lack_is_refused():
    with pytest.raises(GradscopeError, match=r"no format for \.pdf files") as raised:
        wanted(file="report.pdf")
    assert "-o report.html" in raised.value.help


def test_a_page_does_not_fill_a_terminal(monkeypatch):
    monkeypatch.setattr("sys.stdout.isatty", lambda: True, raising=False)
    with pytest.raises(GradscopeError, match="html is a page") as raised:
        wanted("html")
    assert "-o report.html" in raised.value.help


def test_a_page_may_go_down_a_pipe(monkeypatch):
    monkeypatch.setattr("sys.stdout.isatty", lambda: False, raising=False)
    assert wanted("html").file == "-"


def test_a_page_never_goes_to_stderr():
    with pytest.raises(GradscopeError, match="html is a page"):
        wanted("html", "", streams=("-", ""))


def test_to_open_what_is_no_page_is_a_mistake():
    with pytest.raises(GradscopeError, match="--output-format is json"):
        wanted("json", is_opened=True)


def test_a_page_that_nobody_named_is_named_after_what_it_shows():
    path = Path(wanted(is_opened=True).file)
    assert path.name == "model.html" and path.parent.is_dir()


def test_what_is_to_be_opened_is_opened_where_it_was_written(monkeypatch, tmp_path, capsys):
    opened = []
    monkeypatch.setattr("webbrowser.open", lambda url: opened.append(url) or len(opened) < 2)
    page = tmp_path / "my report.html"
    destination = Destination(text="my report.html", path=page)
    wanted(file="my report.html").open(destination)
    assert not opened
    wanted(file="my report.html", is_opened=True).open(destination)
    assert opened == [page.as_uri()]
    assert capsys.readouterr().err == ""
    wanted(file="my report.html", is_opened=True).open(destination)
    assert "no browser found: open my report.html" in capsys.readouterr().err
