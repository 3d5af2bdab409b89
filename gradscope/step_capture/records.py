"""Makes the recording of a captured step, also if its forward was not observed."""

from dataclasses import dataclass, replace
from typing import NamedTuple, Self

from torch import Tensor
from torch._C import DisableTorchFunction

from gradscope.capture.errors import backward_call
from gradscope.capture.naming import NamedModel, name_model
from gradscope.capture.reading import whole
from gradscope.capture.source.definitions import Definitions
from gradscope.capture.step.assemble import Assembler
from gradscope.capture.step.forward_backward import StepCapture
from gradscope.capture.step.measurements import BackwardWatch, Measurements
from gradscope.capture.training.locations import subject_of
from gradscope.capture.training.state import TrainingState
from gradscope.errors import GradscopeError
from gradscope.probes.context import ProbeContext, is_made
from gradscope.probes.forward.nonfinite_origins import record_of
from gradscope.probes.forward.operations import Positions, reference
from gradscope.probes.registry import PROBES
from gradscope.recording.evidence.batches import ProbeRecord
from gradscope.recording.evidence.failures import LateCapture, SuspectedBreak
from gradscope.recording.evidence.forward import ForwardStat
from gradscope.recording.meta import Header
from gradscope.recording.origin import TargetRecord
from gradscope.recording.records import (
    CapturedStep,
    Recording,
)
from gradscope.step_capture.failed_step import failed_recording
from gradscope.step_capture.late_captures import LastStart, LateBackward, Suspicion
from gradscope.step_capture.probing import HalfPrecision, probe_captured_step
from gradscope.step_capture.script_models import Script, script_of
from gradscope.step_capture.structures import Structures, structure_of
from gradscope.step_capture.window import Window
from gradscope.target.batches import Batches
from gradscope.target.target import Outcome, Target

NOT_WATCHED = "the forward of this step was not observed"


def note_late(
    assembler: Assembler, late: LateBackward, locations: Positions, first_node: int
) -> None:
    """Record where a forward and its backward broke, and the evidence.

    Args:
        assembler: Receives the records.
        late: The captured backward.
        locations: Positions of the nodes' records, by sequence number.
        first_node: Position of the graph's first node.
    """
    lines = late.lines
    assembler.note(replace(lines, unsure=tuple(first_node + node for node in lines.unsure)))
    for origin in late.found.origins:
        assembler.note(record_of(assembler, origin, locations, of_loss=late.found.of_loss))
    for number, (numel, values) in late.values.items():
        tensor = reference(locations, number)
        if tensor is not None:
            assembler.note(ForwardStat(tensor=tensor, numel=numel, **values._asdict()))
    _note_probes(assembler)


def note_suspicion(assembler: Assembler, suspicion: Suspicion) -> None:
    """Record the suspected origin of non-finite gradients in a step that was not captured."""
    first, *others = suspicion.suspects
    site = assembler.site_of(first.line)
    sites = (assembler.site_of(one.line) for one in others if one.is_likely or not first.is_likely)
    assembler.note(
        LateCapture(
            lines="matched",
            matched_step=suspicion.matched_step,
            matched_nodes=0,
            nodes=0,
            unsure=(),
        ),
        SuspectedBreak(
            operation=first.operation,
            site=site,
            others=tuple(dict.fromkeys(one for one in sites if one not in (None, site))),
            is_likely=first.is_likely,
            parameters=suspicion.parameters,
            matched_step=suspicion.matched_step,
        ),
    )
    _note_probes(assembler)


def _note_probes(assembler: Assembler) -> None:
    for name, _ in PROBES:
        reason = None if name == "non-finite" else NOT_WATCHED
        assembler.note(ProbeRecord(name=name, skip_reason=reason))


@dataclass(slots=True)
class CurrentCapture:
    """A backward that is being captured."""

    window: Window
    script: Script
    named: NamedModel
    capture: StepCapture
    watch: BackwardWatch
    half: HalfPrecision
    root: Tensor
    subject: str
    line: object
    """Identifies the line that calls it."""
    scale: float
    """Factor on the root."""


class Made(NamedTuple):
    """The recording of a backward, and the recording that it repeats."""

    recording: Recording
    own_evidence: tuple[object, ...] = ()
    same_as: int | None = None


class FoundCaptures:
    """The captured steps of a run, until they are written."""

    def __init__(self) -> None:
        self._new: list[tuple[int, Made]] = []
        self.number = 0
        """Number of captured steps."""

    @property
    def has_new(self) -> bool:
        """Whether there is a captured step that was not taken."""
        return bool(self._new)

    def add(self, order: int, made: Made) -> None:
        """Add a captured step, with the index of its backward in the step."""
        self._new.append((order, made))
        self.number += 1

    def take(self, step: int) -> tuple[CapturedStep, ...]:
        """Return the captured steps since the last call, as those of a step."""
        new, self._new = self._new, []
        return tuple(CapturedStep(step=step, order=order, **made._asdict()) for order, made in new)


class CaptureRecords:
    """Makes recordings of single backward passes.

    Args:
        training: State of the training.
        header: Header of the run's recording.
    """

    def __init__(self, training: TrainingState, header: Header) -> None:
        self._training, self._header = training, header
        self.definitions = Definitions()
        """Lines that registered the script's modules and parameters."""
        self._structures = Structures()

    def knows(self, line: object) -> bool:
        """Return whether a backward at a line was captured before."""
        return self._structures.has_any(line)

    def made(self, current: CurrentCapture, number: int) -> Made:
        """Return the recording of a finished backward, given its number in the run."""
        loss, measured = _number(current.root, current.scale), current.watch.measurements()
        optimizers = tuple(one for one in self.definitions.optimizers if is_made(one))
        structure = structure_of(current.named, current.capture, measured, optimizers)
        # A full capture has values of its own, which a repetition would leave out.
        known = None
        if not current.window.is_full:
            known = self._structures.like(current.line, structure, measured, loss)
        if known is not None:
            target = self.described(current.subject)
            return Made(*known.again(measured, optimizers, target, loss), known.number)
        recording = self._anew(current, measured, loss)
        self._structures.keep(current.line, structure, recording, number)
        return Made(recording)

    def _anew(
        self, current: CurrentCapture, measured: Measurements, loss: float | None
    ) -> Recording:
        """Return the recording of a backward that repeats none."""
        assembler = self.assembler(current.named)
        context = ProbeContext(
            target=_target(self._header, current.script),
            named=current.named,
            assembler=assembler,
            definitions=self.definitions,
            capture=current.capture,
            measured=measured,
            loss=loss,
            terms=0,
            opaque=False,
            reruns=False,
            random_states=None,
            of_run=True,
        )
        probe_captured_step(context, current.window.values, current.root, current.half)
        assembler.add_step("step", current.capture, context.measured, loss=loss)
        return assembler.finish(self.described(current.subject))

    def made_late(self, late: LateBackward, measured: Measurements | None) -> Recording:
        """Return the recording of a backward whose forward was not observed.

        Args:
            late: The captured backward.
            measured: The gradients that it delivered; None if it did not finish.
        """
        assembler = self.assembler(late.named)
        location = assembler.position_of(late.capture)
        numbers = late.capture.graph.by_number()
        locations = {number: location.first_node + node for number, node in numbers.items()}
        note_late(assembler, late, locations, location.first_node)
        if measured is None:
            assembler.add_broken_step(late.capture, reason="backward did not finish")
        else:
            assembler.add_step("step", late.capture, measured, loss=late.loss)
        return assembler.finish(self.described(late.start.subject))

    def made_of_suspicion(self, suspicion: Suspicion, last: LastStart) -> Recording:
        """Return the recording of a step with non-finite gradients that was not captured."""
        assembler = self.assembler(suspicion.named)
        note_suspicion(assembler, suspicion)
        assembler.add_broken_step(StepCapture([]), reason="this step was not captured")
        return assembler.finish(self.described(last.subject))

    def made_of_failure(
        self,
        error: Exception,
        capture: StepCapture | None,
        window: Window | None,
        last: Window | None,
    ) -> Recording:
        """Return the recording of an exception that autograd raised and that ended the script.

        Args:
            error: The exception.
            capture: Capture of the backward that raised it, which is released; None without one.
            window: The running step, if it is captured.
            last: The captured step before it.
        """
        training = self._training
        named = name_model(script_of(training), None)
        if capture is None:
            forward = StepCapture([]) if window is None else window.capture
            capture = forward.for_backward(named.parameters, named.shards)
        windows = [one for one in (window, last) if one is not None]
        location = training.locations.of(backward_call(error))
        with DisableTorchFunction():
            recording = failed_recording(
                error,
                capture,
                named,
                self.assembler(named),
                [window.capture.sites for window in windows[1:]],
                passed=frozenset[int]().union(*(window.passed for window in windows)),
                target=self.described(subject_of(location.call())),
            )
        # The traceback of the exception may keep the graph alive for as long as it is handled.
        capture.release_graph()
        return recording

    def assembler(self, named: NamedModel) -> Assembler:
        """Return an assembler for captures of these models."""
        header = self._header
        return Assembler(
            named,
            version=header.version,
            command=header.command,
            environment=header.environment,
            definitions=self.definitions,
        )

    def described(self, subject: str) -> TargetRecord:
        """Return the record of the target: the script, and the start of this backward."""
        return replace(
            self._header.target,
            model=self._training.models.described,
            batch=self._training.batch,
            loss=subject,
        )


class _NotRunAgain:
    """Stands for the forward of a script."""

    def __call__(self) -> Outcome:
        raise GradscopeError("a script's forward is not repeated")

    def at(self, batch: object, seed: int | None) -> Self:
        return self


def _target(header: Header, script: Script) -> Target:
    return Target(
        name=header.target.name,
        model=script,
        batch=(),
        batches=Batches(()),
        forward=_NotRunAgain(),
        optimizer=None,
        seed=None,
    )


def is_broken(recording: Recording) -> bool:
    """Return whether a recording contains non-finite parameter gradients."""
    gradients = (stat.gradient for stat in recording.parameter_stats)
    return any(one is not None and one.nonfinite for one in gradients)


def _number(loss: Tensor, scale: float) -> float | None:
    one = whole(loss)
    # Backward from a vector or a complex number has no single loss.
    is_number = one is not None and one.numel() == 1 and not one.is_complex()
    return float(one) / scale if one is not None and is_number else None
