"""A finding with a fix, in every format."""

import io
import json
import re
from dataclasses import replace
from pathlib import Path

import jsonschema
import pytest
from lxml import html
from rich.console import Console

from gradscope.analysis.view import ViewOptions
from gradscope.fixes.proposing import Proposals
from gradscope.report.documents.inspection import inspection_document
from gradscope.report.findings import render_fixes
from gradscope.report.formats.concise import concise_findings
from gradscope.report.render import render
from tests.report.ci.test_sarif import SCHEMA
from tests.rules.inspecting import report_of_file

SAMPLE = Path(__file__).parents[2] / "sample_models" / "loss_broadcast.py"
ADDED = "+    return ((output.squeeze(-1) - target) ** 2).mean()  # GS702"
REMOVED = "-    return ((output - target) ** 2).mean()  # GS702"
VERDICT = "GS702 gone, gradient norm 0.331 -> 1.11, no new finding"


@pytest.fixture(scope="module")
def report():
    return fixed_report()


def fixed_report():
    """Return a report with a finding that has a fix."""
    found = report_of_file(SAMPLE, probe_steps=0)
    proposals = Proposals(found.recording)
    (proposal,) = proposals.of(found.findings)
    fix = replace(proposals.fix(proposal, proposal.candidates[0]), verified=True, verdict=VERDICT)
    findings = (replace(proposal.finding, fix=fix),)
    return replace(found, findings=findings)


def rendered(report, form):
    console = Console(file=io.StringIO(), width=100, color_system=None)
    return render(report, form, ViewOptions(), console)


def test_json_holds_edits_diff_and_verdict(report):
    (finding,) = json.loads(rendered(report, "json"))["findings"]
    fix = finding["fix"]
    assert (fix["safety"], fix["verified"], fix["verdict"]) == ("safe", True, VERDICT)
    (edit,) = fix["edits"]
    assert edit["file"].endswith("loss_broadcast.py") and edit["replacement"] == ".squeeze(-1)"
    assert edit["start"] == edit["end"] == {"line": 26, "column": 20}
    assert ADDED in fix["diff"].split("\n")


def test_a_report_without_fixes_has_none(report):
    (finding,) = report.findings
    plain = replace(report, findings=(replace(finding, fix=None),))
    (found,) = json.loads(rendered(plain, "json"))["findings"]
    assert "fix" not in found
    assert "**fix**" not in rendered(plain, "markdown")
    assert 'class="copy"' not in rendered(plain, "html")


def test_markdown_and_page_show_the_diff(report):
    text = rendered(report, "markdown")
    assert "**fix**, verified: GS702 gone" in text
    assert f"```diff\n--- a/{SAMPLE.relative_to(Path.cwd())}" in text and f"\n{ADDED}\n" in text
    page = rendered(report, "html")
    assert "fix, verified: GS702 gone" in page and 'class="copy"' in page
    (diff,) = html.fromstring(page).xpath("//figure[contains(@class, 'fix')]/pre")
    assert diff.text_content() == report.findings[0].fix.diff
    assert [line.text for line in diff.xpath("span[@class='added']")] == [ADDED]
    assert [line.text[:3] for line in diff.xpath("span[@class='place']")] == ["---", "+++", "@@ "]


def test_a_concise_finding_has_its_fix_in_lines_that_no_matcher_takes_for_findings(report):
    found, *fix = concise_findings(inspection_document(report, ViewOptions(), 120))
    assert re.match(r"\S+:26:\d+: error: GS702 ", found)
    assert fix == [f"    {line}" for line in (f"fix, verified: {VERDICT}", REMOVED, ADDED)]


def test_formats_of_ci_name_the_changed_lines(report):
    for form in ("github", "junit", "concise"):
        text = rendered(report, form)
        assert "fix, verified: GS702 gone" in text
        assert ".squeeze(-1)" in text
    (issue,) = json.loads(rendered(report, "gitlab"))
    assert "fix, verified: GS702 gone" in issue["description"]
    log = json.loads(rendered(report, "sarif"))
    jsonschema.Draft4Validator(SCHEMA).validate(log)
    (result,) = log["runs"][0]["results"]
    (change,) = result["fixes"][0]["artifactChanges"]
    (replacement,) = change["replacements"]
    assert replacement["insertedContent"] == {"text": ".squeeze(-1)"}
    assert replacement["deletedRegion"] == {
        "startLine": 26, "startColumn": 20, "endLine": 26, "endColumn": 20,
    }  # fmt: skip


def test_a_diff_is_coloured_on_a_terminal_and_keeps_its_lines(report):
    shown = [(one, report.target.root) for one in report.findings]
    plain = render_fixes(
        shown, report.findings * 2, Console(file=io.StringIO(), width=20, color_system=None)
    )
    assert ADDED in plain.split("\n")
    assert plain.endswith("1 fix, 1 verified; 2 more with --unsafe-fixes")
    terminal = Console(file=io.StringIO(), width=20, force_terminal=True, color_system="truecolor")
    assert f"\x1b[32m{ADDED}\x1b[0m" in render_fixes(shown, (), terminal).split("\n")


def test_carriage_returns_and_other_signs_of_a_diff(report):
    (finding,) = report.findings
    fix = replace(finding.fix, diff="+a = '\x1b[31m'\r\n+\tb", verified=False, verdict="why")
    shown = [(replace(finding, fix=fix), report.target.root)]
    text = render_fixes(shown, (), Console(file=io.StringIO(), color_system=None))
    assert "+a = '\\x1b[31m'\r\n+\tb\nnot verified: why\n" in text


def test_a_finding_in_a_notebook_says_that_cells_are_not_edited(report):
    (finding,) = report.findings
    cell = replace(finding.location, file="Cell [3]", line=2)
    shown = [(replace(finding, fix=None, location=cell), report.target.root)]
    (line, closing) = render_fixes(shown, (), Console(file=io.StringIO())).split("\n")
    assert line.startswith("no fix in a notebook: error[GS702]") and "Cell [3], line 2" in line
    assert closing == "no fix available"


def test_only_the_findings_with_an_unsafe_fix_have_no_safe_one(report):
    (finding,) = report.findings
    unsafe, other = (replace(finding, fix=None, message=text) for text in ("one", "two"))
    shown = [(one, report.target.root) for one in (unsafe, other)]
    lines = render_fixes(shown, (unsafe,), Console(file=io.StringIO())).split("\n")
    assert [line.partition(":")[0] for line in lines[:2]] == ["no safe fix", "no fix"]
    assert lines[2] == "no safe fix; 1 with --unsafe-fixes"


def test_text_between_the_diffs_is_folded_on_a_terminal_alone(report):
    shown = [(one, report.target.root) for one in report.findings]
    terminal = Console(file=io.StringIO(), width=60, force_terminal=True, color_system=None)
    folded = render_fixes(shown, (), terminal).split("\n")
    plain = render_fixes(shown, (), Console(file=io.StringIO(), width=60)).split("\n")
    assert max(map(len, folded[:2])) <= 60 < len(plain[0])
    assert folded[1].startswith("    ")
    assert " ".join("\n".join(folded).split()) == " ".join("\n".join(plain).split())
