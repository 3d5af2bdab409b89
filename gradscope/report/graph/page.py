"""A graph as a page of HTML, in which modules are opened one after the other."""

from dataclasses import replace

from gradscope.analysis.report import Report
from gradscope.analysis.selection import modules_below
from gradscope.analysis.view import ViewOptions
from gradscope.errors import GradscopeError
from gradscope.report.html.charts.insides import inside_chart
from gradscope.report.html.modules import module_columns
from gradscope.report.html.page import Tab, render_page
from gradscope.report.html.phrasing import words_of


def render_graph_page(report: Report, module: str | None) -> str:
    """Return a page that needs nothing beside itself, without a last line break.

    Args:
        report: Whose graph it is.
        module: The path of the module that is open at first.

    Raises:
        GradscopeError: The module is not in the report, or there is no graph.
    """
    chart = inside_chart(report)
    if chart is None:
        raise GradscopeError("no graph to draw: no backward was recorded")
    if module:
        start = modules_below(report, ViewOptions(module=module))[0].index
        chart = replace(chart, content={**chart.content, "start": start})
    tab = Tab(
        title=report.target.name,
        words=words_of(report),
        charts=(replace(chart, height=720),),
        modules=module_columns(report),
    )
    return render_page([tab], f"{report.target.name} · gradscope graph")
