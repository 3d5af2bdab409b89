"""Two steps of a run side by side: the layers whose gradients changed most come first."""

from gradscope.report.html.page import Chart


def two_steps(heatmap: Chart, steps: int) -> Chart:
    """Return the chart, which shows the numbers of the heatmap of layers by step.

    Args:
        heatmap: Chart with the numbers.
        steps: Number of steps of the run.
    """
    return Chart(
        name="two-steps",
        kind="two-steps",
        title="Two steps compared",
        caption=(
            f"The gradient norms of {heatmap.title.lower()} at two steps, the largest change first."
            " Click a layer to see all its steps as a line in the curves above. The address keeps"
            " both steps and the layer."
        ),
        content={"steps": steps},
    )
