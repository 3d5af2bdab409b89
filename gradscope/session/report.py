"""The report that the Python API returns: its facts, and how they are shown."""

import random
from collections.abc import Iterator
from contextlib import contextmanager
from os import PathLike

from gradscope.analysis import report


class Report(report.Report):
    """What one forward and backward did to every parameter and tensor.

    ```
    report = gradscope.inspect(model, batch, loss_fn)
    for parameter in report.parameters:
        print(parameter.name, parameter.grad.norm if parameter.grad else parameter.reason)
    ```

    Of a recording with many steps, the rows show the judged one; of a training run, what was
    measured last.
    """

    __slots__ = ()

    def to_json(self) -> str:
        """Return the report as JSON, by the schema `gradscope/schemas/report-1.json`."""
        from gradscope.report.json_format import render_json

        return render_json(self)

    def to_html(self) -> str:
        """Return the report as a page of HTML that needs nothing beside itself."""
        # Plotly and jinja2 are needed by those alone who want a page.
        with _python_random_kept():
            from gradscope.report.html.render import render_html

            return render_html([self])

    def save(self, path: str | PathLike[str], *, force: bool = False) -> None:
        """Write the recording to a file that `gradscope report` reads.

        Raises:
            GradscopeError: The file exists and `force` is not set, or it cannot be written.
        """
        # sqlite3 is needed by those alone who save.
        from gradscope.recording.store import save_recording

        save_recording(self.recording, path, force=force)

    def __repr__(self) -> str:
        with _python_random_kept():
            from gradscope.report.notebook import brief_text

            return brief_text(self)

    def _repr_html_(self) -> str:
        with _python_random_kept():
            from gradscope.report.notebook import brief_html

            return brief_html(self)


@contextmanager
def _python_random_kept() -> Iterator[None]:
    """Keep what draws random numbers while it is imported, as rich does, from the user's."""
    state = random.getstate()
    try:
        yield
    finally:
        random.setstate(state)
