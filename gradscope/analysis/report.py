"""The report: a recording and its findings, joined and ready to show; torch-free."""

import random
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from difflib import get_close_matches
from os import PathLike
from typing import Self

from gradscope.analysis import assembly
from gradscope.analysis.module_rows import module_rows
from gradscope.analysis.rows import (
    GraphSummary,
    ModuleRow,
    OtherStep,
    ParameterRow,
    Summary,
    TensorRow,
)
from gradscope.analysis.step_view import first_step, last_run_step
from gradscope.analysis.training_run import TrainingRun, training_run
from gradscope.recording.finding import Finding
from gradscope.recording.records import (
    Environment,
    EventRecord,
    Recording,
    Skipped,
    TargetRecord,
)
from gradscope.recording.verdict import UNJUDGED, Verdict
from gradscope.report.names import printable


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Report:
    """What one forward and backward did to every parameter and tensor.

    ```
    report = gradscope.inspect(model, batch, loss_fn)
    for parameter in report.parameters:
        print(parameter.name, parameter.grad.norm if parameter.grad else parameter.reason)
    ```

    Of a recording with many steps, the rows show the judged one; of a training run, what was
    measured last.
    """

    version: str
    """Of gradscope, that made the recording."""
    command: str
    environment: Environment
    target: TargetRecord
    summary: Summary
    parameters: tuple[ParameterRow, ...]
    modules: tuple[ModuleRow, ...]
    tensors: tuple[TensorRow, ...]
    """Every distinct tensor between the parameters and the loss, in the order of the forward."""
    graph: GraphSummary
    training: tuple[OtherStep, ...]
    """The steps on the way to the judged one."""
    probes: tuple[OtherStep, ...]
    """The steps on from there."""
    training_run: TrainingRun | None
    """How a script trained, step by step; None where gradscope made the steps."""
    events: tuple[EventRecord, ...]
    findings: tuple[Finding, ...]
    """The worst first."""
    rules: Verdict
    """Which rules ran, and which could not."""
    skipped: tuple[Skipped, ...]
    """What could not be measured, and why."""
    recording: Recording = field(compare=False)
    """Where all of it comes from."""

    @classmethod
    def from_recording(cls, recording: Recording, verdict: Verdict = UNJUDGED) -> Self:
        """Join the judged step's records with what the rules make of the recording."""
        run = training_run(recording)
        view = first_step(recording) if run is None else last_run_step(recording)
        parameters = assembly.parameter_rows(view)
        tensors = assembly.tensor_rows(view)
        graph = assembly.graph_summary(view)
        return cls(
            version=recording.version,
            command=recording.command,
            environment=recording.environment,
            target=recording.target,
            summary=assembly.summarise(view, parameters, tensors, graph),
            parameters=parameters,
            modules=module_rows(view, parameters),
            tensors=tensors,
            graph=graph,
            training=assembly.other_steps(recording, "training"),
            probes=assembly.other_steps(recording, "probe"),
            training_run=run,
            events=recording.events,
            findings=verdict.findings,
            rules=verdict,
            skipped=recording.skipped,
            recording=recording,
        )

    def parameter(self, name: str) -> ParameterRow:
        """Return the parameter of a fully qualified name, or of another name of the same tensor.

        Raises:
            KeyError: The model has none of that name.
        """
        rows = {alias: row for row in self.parameters for alias in (row.name, *row.aliases)}
        if name in rows:
            return rows[name]
        close = get_close_matches(name, rows, n=1)
        hint = f": did you mean `{printable(close[0])}`?" if close else ""
        raise KeyError(f"no parameter `{printable(name)}`{hint}")

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
