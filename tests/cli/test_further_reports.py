"""`gradscope check --also FORMAT=FILE`: several reports of one run."""

import io
import json
import sys
from pathlib import Path
from typing import get_args

import pytest

from gradscope.check.results import CheckResult, Failure, TargetResult
from gradscope.cli import main
from gradscope.cli.check_outputs import check_further_reports, write_further_reports
from gradscope.cli.console import make_console
from gradscope.cli.output import check_destinations
from gradscope.config.formats import CIFormat, ReportFormat
from gradscope.errors import GradscopeError
from gradscope.report.render import render_check

FORMATS = (*get_args(ReportFormat), *get_args(CIFormat))
UNJUDGED = CheckResult(
    version="1",
    command="gradscope check model.py",
    targets=(TargetResult(name="model.py", failures=(Failure(what="it raised an exception"),)),),
)


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "model.py").write_text("code")
    return tmp_path


def wanted(*texts, main="-"):
    destination = check_destinations(main, None, force=False).report
    return check_further_reports(texts, destination, [Path("model.py")])


@pytest.mark.parametrize("name", FORMATS)
def test_each_file_has_what_the_main_report_would_say(folder, name):
    write_further_reports(UNJUDGED, wanted(f"{name}=report", "json=a=b.json"))
    console = make_console(io.StringIO(), "never")
    expected = render_check(UNJUDGED, name, console)
    written = (folder / "report").read_text(encoding="utf-8")
    if name == "junit":  # tells the time
        assert "it raised an exception" in written
    else:
        assert written == expected + "\n"
    assert json.loads((folder / "a=b.json").read_text())["targets"][0]["outcome"] == "unjudged"


@pytest.mark.parametrize("text", ["", "sarif", "sarif=", "json=-", "=x", "SARIF=x", "xml=x", "./x"])
def test_neither_a_format_nor_a_file_is_guessed(text):
    with pytest.raises(GradscopeError, match="--also") as caught:
        wanted(text)
    assert "FORMAT=FILE" in caught.value.help or caught.value.help == "such as --also " + (
        f"{text.rstrip('=-')}=gradscope.{text.rstrip('=-')}"
    )


def test_two_reports_never_share_a_file():
    with pytest.raises(GradscopeError, match=r"two reports would be written to '\./x'"):
        wanted("json=x", "sarif=./x")
    with pytest.raises(GradscopeError, match="two reports would be written to 'x'"):
        wanted("json=x", main="x")


def test_nothing_that_is_read_is_overwritten(folder):
    (folder / "link.sarif").symlink_to("model.py")
    for name in ("model.py", "./model.py", "link.sarif"):
        with pytest.raises(GradscopeError, match="would overwrite what the check reads"):
            wanted(f"sarif={name}")


@pytest.mark.parametrize("option", ["-o", "--also"])
@pytest.mark.parametrize(
    ("file", "keeps"),
    [
        ("known.json", ("--baseline", "known.json", "--write-baseline")),
        ("run.gradscope", ("--save", "run.gradscope")),
        ("runs/model.py-seed-1.gradscope", ("--save", "runs", "--seeds", "2")),
    ],
)
def test_no_report_takes_the_place_of_what_the_check_keeps(
    folder, monkeypatch, capsys, option, file, keeps
):
    (folder / "runs").mkdir()
    wanted = file if option == "-o" else f"full={file}"
    monkeypatch.setattr(sys, "argv", ["gradscope", "check", "model.py", *keeps, option, wanted])
    monkeypatch.setattr(sys, "excepthook", sys.excepthook)  # which typer replaces
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == 2
    told = capsys.readouterr().err
    assert told.startswith(f"error: {option} ")
    assert "would overwrite what the c" in told or "ends as a recording does" in told
    assert not (folder / file).exists()


def test_a_missing_folder_is_told_before_anything_runs():
    with pytest.raises(GradscopeError, match="cannot write 'reports/x'"):
        wanted("sarif=reports/x")
