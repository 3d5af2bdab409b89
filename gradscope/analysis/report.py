"""A recording and its findings, joined: what every report shows."""

from collections.abc import Sequence
from dataclasses import field, replace
from difflib import get_close_matches
from typing import Self

from gradscope.analysis import assembly
from gradscope.analysis.ranks.job_summary import JobSummary, job_summary
from gradscope.analysis.ranks.joined import joined_recording
from gradscope.analysis.recording_index import first_step, last_run_step
from gradscope.analysis.rows import (
    GraphSummary,
    ModuleRow,
    OtherStep,
    ParameterRow,
    Summary,
    TensorRow,
    module_rows,
)
from gradscope.analysis.training_run import TrainingRun, failure_text, training_run
from gradscope.frozen import dataclass
from gradscope.phrasing import printable
from gradscope.recording.finding import UNJUDGED, Finding, Verdict
from gradscope.recording.origin import Environment, TargetRecord
from gradscope.recording.records import (
    EventRecord,
    Recording,
    Skipped,
)


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Report:
    """The facts of a recording, joined with its findings.

    Of a recording with many steps, the rows show the judged one; of a training run, what was
    measured last.
    """

    version: str
    """Version of gradscope that made the recording."""
    command: str
    environment: Environment
    target: TargetRecord
    summary: Summary
    parameters: tuple[ParameterRow, ...]
    modules: tuple[ModuleRow, ...]
    tensors: tuple[TensorRow, ...]
    """All distinct tensors between the parameters and the loss, in the order of the forward."""
    graph: GraphSummary
    training: tuple[OtherStep, ...]
    """Training steps before the judged one."""
    probes: tuple[OtherStep, ...]
    """Probe steps after the judged one."""
    training_run: TrainingRun | None
    """Training run of a script, step by step; None if gradscope made the steps."""
    events: tuple[EventRecord, ...]
    findings: tuple[Finding, ...]
    """Findings, the worst first."""
    rules: Verdict
    """Rules that ran, and rules that were skipped."""
    skipped: tuple[Skipped, ...]
    """Facts that could not be measured, with the reasons."""
    job: JobSummary | None
    """Distributed job of the recording, with all recorded ranks; None outside a job."""
    recording: Recording = field(compare=False)
    """Recording that the report is derived from; for a job, see `joined_recording`."""
    ranks: tuple[Recording, ...] = field(compare=False)
    """Recordings of all ranks, if a whole job is reported; otherwise empty."""

    @classmethod
    def from_recording(
        cls,
        recording: Recording,
        verdict: Verdict = UNJUDGED,
        ranks: Sequence[Recording] = (),
    ) -> Self:
        """Join the judged step's records with the verdict of the rules.

        Args:
            recording: The recording, of a job that of its first rank.
            verdict: What the rules found.
            ranks: Recordings of all ranks, if a whole job is reported.
        """
        run, job = training_run(recording), job_summary(ranks or (recording,))
        if run is not None and job is not None and job.is_joined and job.failure is not None:
            run = replace(run, ending=failure_text(job.failure, recording.target.root))
        # A training run has no judged step: the last measurements stand for it.
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
            job=job,
            recording=recording,
            ranks=tuple(ranks),
        )

    @classmethod
    def of_job(cls, ranks: Sequence[Recording], verdict: Verdict = UNJUDGED) -> Self:
        """Join the ranks of a job, by rank, with the verdict of the rules."""
        return cls.from_recording(joined_recording(ranks), verdict, ranks)

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
