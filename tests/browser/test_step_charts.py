"""The charts of one step, and how they are linked."""

import re

import pytest
import torch
from playwright.sync_api import expect
from torch import nn

import gradscope
from gradscope.report.html.charts.module_map import MOST_DRAWN
from gradscope.report.html.page import render_page
from gradscope.report.html.report_page import tab_of
from tests.browser.recordings import HOSTILE, hostile_report, sample_report


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


def chart(page, name):
    """Return a chart after it was painted."""
    found = page.locator(f"[data-chart={name}]")
    found.evaluate("one => { one.open = true }")
    found.scroll_into_view_if_needed()
    expect(found.locator(".main-svg, .rows, svg").first).to_be_visible()
    return found


def point(found, trace, at):
    """Return a mark of a trace."""
    return found.locator(".scatterlayer .trace").nth(trace).locator("path.point").nth(at)


@pytest.mark.nightly
def test_a_tensor_on_the_depth_selects_its_layer_everywhere(show, stack):
    page = show(stack)
    table = chart(page, "tensors")
    modules = chart(page, "modules")
    depth = chart(page, "depth")
    at = next(position for position, row in enumerate(stack.tensors) if row.module == "layers.3")
    point(depth, 0, at).click(force=True)
    expect(page.locator(".crumbs")).to_have_text(re.compile("^SigmoidStack .* layers .* 3$"))
    chosen = table.locator("tr.chosen")
    expect(chosen).to_have_count(1)
    expect(chosen.locator("td.name")).to_have_text("layers.3")
    outlines = modules.locator("g.slice path.surface").evaluate_all(
        "cells => cells.map(cell => cell.style.stroke)"
    )
    selected = page.evaluate("getComputedStyle(document.querySelector('.selected')).borderColor")
    assert outlines.count(selected) == 1


@pytest.mark.nightly
def test_a_cell_of_the_map_is_selected_and_cells_have_two_shapes(show, stack):
    page = show(stack)
    modules = chart(page, "modules")
    cells = modules.locator(".iciclelayer g.slice")
    whole = cells.count()
    modules.locator("g.slice", has_text="layers").first.click()
    expect(page.locator(".crumbs")).to_have_text(re.compile("^SigmoidStack .* layers$"))
    modules.locator("label", has_text="treemap").click()
    expect(modules.locator(".treemaplayer g.slice").first).to_be_visible()
    assert whole == len(stack.modules)


@pytest.mark.nightly
def test_cell_that_holds_all_is_narrow_and_leaves_are_labelled(show, stack):
    page = show(stack)
    cells = chart(page, "modules").locator(".iciclelayer g.slice")
    expect(cells.first).to_be_visible()
    found = cells.evaluate_all(
        """cells => cells.map((cell) => {
          const { left, right } = cell.firstChild.getBoundingClientRect();
          const text = cell.querySelector('text');
          return [text.textContent, left, right, getComputedStyle(text).visibility];
        })"""
    )
    boxes = {text.rpartition("  ")[0].removeprefix("⚠ "): box for text, *box in found}
    (left, right, _), head = boxes["SigmoidStack"], boxes["head"]
    assert right - left < 0.1 * (head[1] - head[0])
    for number in range(20):
        inner, end, visibility = boxes[str(number)]
        assert visibility == "visible"
        assert inner == pytest.approx(boxes["layers"][1], abs=3)
        # Cells that hold nothing end at the right.
        assert end == pytest.approx(head[1], abs=3)


@pytest.mark.nightly
def test_marks_tell_exact_numbers_and_switches_show_others_by_keyboard(show, stack):
    page = show(stack)
    depth = chart(page, "depth")
    first = stack.tensors[0]
    point(depth, 0, 0).hover(force=True)
    told = depth.locator(".hovertext")
    expect(told).to_contain_text("Addmm in layers.0")
    expect(told).to_contain_text(f"gradient norm  {first.grad.norm:.5g}"[:20])
    title = depth.locator(".ytitle")
    expect(title).to_have_text("gradient norm")
    depth.locator("input[type=radio]").first.focus()
    page.keyboard.press("ArrowRight")
    expect(title).to_have_text("root mean square of the gradient")


@pytest.mark.nightly
def test_axis_over_few_powers_of_ten_has_whole_numbers_at_its_ticks(show):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(20, 64), nn.ReLU(), nn.Linear(64, 5))
    report = gradscope.inspect(
        model, torch.randn(8, 20), lambda out: out.square().mean(), probe_steps=0
    )
    page = show(report)
    texts = chart(page, "depth").locator(".ytick text").all_text_contents()
    # A 5 for 0.5 would be out of order.
    ticks = [float(text) for text in texts]
    assert len(ticks) > 2
    assert ticks == sorted(ticks)


@pytest.mark.nightly
def test_hostile_names_are_shown_as_text(show):
    page = show(hostile_report())
    depth, modules = chart(page, "depth"), chart(page, "modules")
    expect(modules.locator("g.slice", has_text="</script>").first).to_be_visible()
    depth.scroll_into_view_if_needed()
    point(depth, 0, 0).hover(force=True)
    expect(depth.locator(".hovertext")).to_contain_text("</script><img src=x")
    chart(page, "parameters")
    assert page.evaluate("typeof harmed") == "undefined"
    assert page.locator(".hostile").count() == 0
    assert HOSTILE[:9] in page.locator("[data-chart=parameters]").inner_text()


@pytest.mark.nightly
def test_rows_are_filtered_by_comparisons_and_names_are_copied(show, stack):
    page = show(stack)
    table = chart(page, "parameters")
    limit = sorted(row.grad.norm for row in stack.parameters)[3]
    table.locator("input[type=search]").fill(f"norm<={limit!r}")
    expect(table.locator("tbody tr:not(.space)")).to_have_count(4)
    table.locator("input[type=search]").fill("weight head")
    expect(table.locator("tbody tr:not(.space)")).to_have_count(1)
    expect(table.locator("tbody td.name")).to_have_text("head.weight")
    table.locator("input[type=search]").fill("nowhere")
    expect(table.locator("tbody")).to_contain_text("No row matches the filter")
    table.locator("input[type=search]").fill("")
    table.locator("tbody tr:not(.space)").nth(2).click()
    table.locator(".rows").focus()
    copied = table.locator(".rows").evaluate(
        """view => {
          const data = new DataTransfer();
          view.dispatchEvent(new ClipboardEvent('copy', { clipboardData: data, bubbles: true }));
          return data.getData('text/plain');
        }"""
    )
    assert copied == stack.parameters[2].name


@pytest.mark.nightly
def test_rows_are_cards_on_a_narrow_screen(show, stack):
    page = show(stack, width=420)
    table = chart(page, "parameters")
    rows = table.locator("tbody tr:not(.space)")
    names = {row.name for row in stack.parameters}
    expect(rows.first.locator("td.name")).to_have_text(stack.parameters[0].name)
    # Nothing is cut off, and nothing lies outside.
    sizes = rows.first.locator("td").evaluate_all(
        "cells => cells.map(({ clientWidth, scrollWidth }) => [clientWidth, scrollWidth])"
    )
    assert all(whole <= seen for seen, whole in sizes)
    assert page.evaluate("document.documentElement.scrollWidth") <= 420
    # Of many, those in view are in the document, also at the end.
    view = table.locator(".rows")
    assert rows.count() < len(stack.parameters)
    view.evaluate("view => view.scrollTo(0, view.scrollHeight)")
    last = rows.filter(has_text=stack.parameters[-1].name)
    expect(last).to_be_in_viewport()
    assert names.issuperset(rows.locator("td.name").all_inner_texts())


@pytest.mark.nightly
def test_of_very_many_modules_side_by_side_the_largest_are_drawn(show):
    sizes = [1] * MOST_DRAWN + [2] * 40
    layers = nn.ModuleList(nn.Linear(size, size, bias=False) for size in sizes)
    report = gradscope.inspect(
        layers,
        torch.ones(2, 2),
        lambda model, x: sum(layer(x[:, : layer.in_features]).sum() for layer in model),
        probe_steps=0,
    )
    page = show(report)
    modules = chart(page, "modules")
    expect(modules.locator(".caption")).to_contain_text("The 900 largest children")
    cells = modules.locator(".iciclelayer g.slice")
    expect(cells).to_have_count(MOST_DRAWN + 1)
    # The forty that have more parameters than all the others come last.
    expect(cells.filter(has_text=re.compile("^939"))).to_have_count(1)
