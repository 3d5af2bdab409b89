"""What a reader saves of charts and tables."""

import csv
import math

import pytest
from lxml import etree
from playwright.sync_api import expect

from gradscope.report.html.page import render_page
from gradscope.report.html.report_page import tab_of
from tests.browser.recordings import HOSTILE, hostile_report, sample_report
from tests.browser.test_run_page import run_report
from tests.nightly import some_on_push
from tests.report.test_fixes import fixed_report


@pytest.fixture(scope="module")
def stack():
    return sample_report("vanishing_stack.py")


@pytest.fixture
def show(open_page, tmp_path):
    def show(report, **given):
        path = tmp_path / "report.html"
        path.write_text(render_page([tab_of(report)], "a report"), encoding="utf-8")
        return open_page(path, **given)

    return show


@pytest.fixture
def saved(tmp_path):
    """Return the bytes that a button of a chart saves."""

    def saved(page, chart, file_format):
        section = page.locator(f"[data-chart={chart}]")
        section.evaluate("one => { one.open = true }")
        with page.expect_download() as waiting:
            section.get_by_role("button", name=file_format, exact=True).click()
        assert waiting.value.suggested_filename.endswith(f"-{chart}.{file_format.lower()}")
        path = tmp_path / "saved"
        waiting.value.save_as(path)
        return path.read_bytes()

    return saved


def rows(text):
    return list(csv.DictReader(text.decode("utf-8").splitlines()))


@pytest.mark.nightly
def test_a_table_is_saved_with_exact_numbers_as_it_is_filtered(show, saved, stack):
    page = show(stack)
    found = rows(saved(page, "parameters", "CSV"))
    assert [(row["parameter"], float(row["gradient norm"])) for row in found] == [
        (row.name, row.grad.norm) for row in stack.parameters
    ]
    page.locator("[data-chart=parameters]").get_by_role("searchbox").fill("head")
    found = rows(saved(page, "parameters", "CSV"))
    assert [row["parameter"] for row in found] == ["head.weight", "head.bias"]


@pytest.mark.nightly
def test_a_chart_is_saved_with_the_numbers_of_its_marks(show, saved, stack):
    found = rows(saved(show(stack), "depth", "CSV"))
    norms = {float(row["gradient norm"]) for row in found if row["gradient norm"]}
    assert {row.grad.norm for row in stack.tensors} <= norms
    assert {row.grad.norm for row in stack.parameters} <= norms


@pytest.mark.nightly
def test_the_heatmap_and_the_events_of_a_run_are_saved(show, saved):
    report = run_report()
    page = show(report)
    heat = [row for row in rows(saved(page, "heatmap", "CSV")) if row["series"] == "gradient norm"]
    first = [row["value"] for row in heat[:12]]
    assert [float(value) for at, value in enumerate(first) if at not in (5, 7)] == pytest.approx(
        [10.0 ** -(step % 3) for step in range(12) if step not in (5, 7)]
    )
    events = rows(saved(page, "timeline", "CSV"))
    losses = [row["measured"] for row in events if row["event"].endswith("backward")]
    assert [float(text.split(";")[0].split("=")[1]) for text in losses] == [
        window.loss for window in report.training_run.steps
    ]
    assert all(math.isfinite(float(row["step"])) for row in events)


@pytest.mark.nightly
@pytest.mark.parametrize("chart", some_on_push(["depth", "modules", "inside"], {2}))
@pytest.mark.parametrize("dark", some_on_push([False, True], {1}))
def test_drawings_are_saved_whole(show, saved, stack, chart, dark):
    page = show(stack, dark=dark)
    assert saved(page, chart, "PNG").startswith(b"\x89PNG")
    drawing = etree.fromstring(saved(page, chart, "SVG"))
    assert drawing.tag == "{http://www.w3.org/2000/svg}svg"
    assert len(drawing.findall(".//{*}text")) > 5
    assert b"var(--" not in etree.tostring(drawing)


@pytest.mark.nightly
def test_names_are_saved_as_they_are(show, saved):
    page = show(hostile_report())
    names = [row["parameter"] for row in rows(saved(page, "parameters", "CSV"))]
    assert names[0] == f"{HOSTILE}.weight"
    assert rows(saved(page, "inside", "CSV"))
    modules = rows(saved(page, "modules", "CSV"))
    assert HOSTILE in {row["module"] for row in modules}
    expect(page.locator(".hostile")).to_have_count(0)


@pytest.mark.nightly
def test_a_fix_is_copied_as_a_diff_that_git_applies(show):
    report = fixed_report()
    page = show(report)
    page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    button = page.locator(".fix .copy")
    button.click()
    expect(button).to_have_text("copied")
    copied = page.evaluate("() => navigator.clipboard.readText()")
    assert copied == f"{report.findings[0].fix.diff}\n"
