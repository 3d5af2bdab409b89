"""Two steps of a run side by side: the layers whose gradients changed most come first."""

from gradscope.report.html.page import Chart


def two_steps(steps: int) -> Chart:
    """Return the chart of a run of so many steps; the heatmap of layers has its numbers."""
    return Chart(
        name="two-steps",
        kind="two-steps",
        title="Two steps compared",
        caption=(
            "Gradient norms at two steps, the largest change first. A column of several steps has"
            " their largest norms. Click a layer to see all its steps as a line in the curves."
            " The address keeps both steps and the layer."
        ),
        content={"steps": steps},
        height=180,
    )
