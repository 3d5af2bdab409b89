"""The report of the Python API."""

import random
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from os import PathLike

from gradscope.analysis import report
from gradscope.analysis.view import ViewOptions


class Report(report.Report):
    """Report on what one forward and backward did to every parameter and tensor.

    ```
    report = gradscope.inspect(model, batch, loss_fn)
    for parameter in report.parameters:
        print(parameter.name, parameter.grad.norm if parameter.grad else parameter.reason)
    ```

    In a recording with many steps, the rows show the judged step. For a training run, they show the
    latest measurements.
    """

    __slots__ = ()

    def to_json(self) -> str:
        """Return the report as JSON, with the schema `gradscope/schemas/report-1.json`."""
        from gradscope.report.json.report import render_json

        return render_json(self)

    def to_html(self) -> str:
        """Return the report as one self-contained HTML page."""
        # Only the HTML page needs plotly and jinja2.
        with _preserved_random_state():
            from gradscope.report.html.report_page import render_html

            return render_html([self])

    def save(self, path: str | PathLike[str], *, force: bool = False) -> None:
        """Write the recording to a file for `gradscope report`.

        Raises:
            GradscopeError: The file exists and `force` is not set, or it cannot be written.
        """
        # Only saving needs sqlite3.
        from gradscope.recording.store import save_recording

        save_recording(self.recording, path, force=force)

    def __repr__(self) -> str:
        with _preserved_random_state():
            from gradscope.report.brief import brief_text

            return brief_text(self)

    def _repr_html_(self) -> str:
        with _preserved_random_state():
            from gradscope.report.documents.inspection import inspection_document
            from gradscope.report.formats.notebook import render_notebook

            return render_notebook(partial(inspection_document, self, ViewOptions()))


@contextmanager
def _preserved_random_state() -> Iterator[None]:
    """Restore Python's random state: modules such as rich draw random numbers while imported."""
    state = random.getstate()
    try:
        yield
    finally:
        random.setstate(state)
