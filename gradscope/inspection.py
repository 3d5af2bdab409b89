"""One forward and backward of a target, and a few probing steps, as a recording."""

from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Self

import torch
from torch import Tensor

from gradscope import __version__
from gradscope.capture.assemble import Assembler
from gradscope.capture.compiled import is_compiled, watchable
from gradscope.capture.definitions import Definitions
from gradscope.capture.diagnosis import Diagnosis
from gradscope.capture.errors import (
    StepFailedError,
    autograd_error,
    backward_failed,
    subject_of,
)
from gradscope.capture.lines import NUMBERED
from gradscope.capture.naming import NamedModel, name_model
from gradscope.capture.session import Measurements, StepCapture
from gradscope.capture.sites import SiteMode
from gradscope.capture.written_definitions import written_definitions
from gradscope.description import environment_of, target_record
from gradscope.errors import GradscopeError, UserCodeError
from gradscope.probes.examinations import examine, make_none
from gradscope.probes.optimizer_steps import OptimizerProbe
from gradscope.probes.scene import Scene
from gradscope.probes.snapshot import RandomStates, preserved
from gradscope.recording.records import Recording
from gradscope.target.target import Outcome, Target


def record(
    target: Target,
    *,
    probe_steps: int,
    eager: bool,
    command: str,
    definitions: Definitions | None = None,
    tell: Callable[[GradscopeError], None] | None = None,
) -> Recording:
    """Run a target once under watch, probe it, put everything back, and return what was seen.

    Args:
        target: What to run.
        probe_steps: Optimizer steps to make on a snapshot, each followed by a watched backward.
        eager: Whether the target runs compiled code eagerly.
        command: What was run, for the record.
        definitions: The lines that made the model's modules, where its making was watched.
        tell: Is given the exception, where autograd ended the step: the recording then holds what
            was seen by then.
    """
    named = name_model(target.model, target.optimizer)
    definitions = definitions or written_definitions(named)
    assembler = Assembler(
        named,
        version=__version__,
        command=command,
        environment=environment_of(named),
        definitions=definitions,
    )
    watch = _Watch(
        target,
        named,
        assembler,
        definitions=definitions,
        opaque=is_compiled(target.model) and not eager,
        tell=tell or (lambda error: None),
    )
    with preserved(target.model, target.optimizer, target.batch, target.forward):
        try:
            ending = watch.run(probe_steps)
        finally:
            watch.put_back_gradients()
    return assembler.finish(
        target_record(target, loss=ending.description, synthetic_loss=ending.synthetic)
    )


@dataclass(frozen=True, slots=True)
class _Ending:
    """What is worth knowing of an outcome once its tensors are gone."""

    loss: float | None
    description: str
    synthetic: bool
    terms: int = 0

    @classmethod
    def of(cls, outcome: Outcome) -> Self:
        loss = outcome.loss.detach()
        return cls(
            loss=float(loss) if loss.numel() == 1 else None,
            description=outcome.description,
            synthetic=outcome.synthetic,
            terms=len(outcome.terms),
        )


class _Watch:
    """The steps of one inspection."""

    def __init__(
        self,
        target: Target,
        named: NamedModel,
        assembler: Assembler,
        *,
        definitions: Definitions,
        opaque: bool,
        tell: Callable[[GradscopeError], None],
    ) -> None:
        self._tell = tell
        self._earlier: list[SiteMode] = []
        """The lines of the forwards so far."""
        self._target = target
        self._named = named
        self._assembler = assembler
        self._definitions = definitions
        self._opaque = opaque
        self._others: dict[Tensor, Tensor | None] = {}
        """Leaves outside the model, as a loss's parameters, and the gradients they came with."""
        if not NUMBERED:
            assembler.skip("lines and module calls", "this torch does not number its nodes")
        if any(isinstance(module, torch.jit.ScriptModule) for module in named.modules):
            assembler.skip("lines inside scripted modules", "TorchScript runs them, and not Python")
        if opaque:
            assembler.skip(
                "lines and module calls",
                "the model is compiled, and its inside runs out of sight; --eager shows it",
            )

    def run(self, probe_steps: int) -> _Ending:
        """Make the target's step and the probing ones; return how the first forward ended."""
        target = self._target
        random_states = RandomStates.now()
        try:
            capture, ending, measured = self._backward()
        except StepFailedError as failed:
            return self._end(failed)
        examine(
            Scene(
                target=target,
                named=self._named,
                assembler=self._assembler,
                definitions=self._definitions,
                capture=capture,
                measured=measured,
                place=self._assembler.place_of(capture),
                loss=ending.loss,
                terms=ending.terms,
                opaque=self._opaque,
                reruns=probe_steps > 0,
                random_states=random_states,
            )
        )
        probe = OptimizerProbe(self._named.parameters, target.optimizer)
        wants_steps = probe.is_users or probe_steps > 0
        updates = self._step(probe) if wants_steps else None
        self._assembler.add_step(
            "step",
            capture,
            measured,
            loss=ending.loss,
            optimizer=probe.description if probe.is_users else None,
            update_norms=updates if probe.is_users else None,
        )
        capture.close()
        if updates is not None:
            self._probe(probe, probe_steps)
        return ending

    def _end(self, failed: StepFailedError) -> _Ending:
        """Keep what was seen of a step that autograd ended."""
        kind = type(failed.raised).__name__
        reason = failed.what if failed.raised is failed.shown else f"{failed.what} ({kind})"
        self._assembler.add_broken_step(failed.capture, reason=reason)
        self._note(failed, step=0)
        make_none(self._assembler, reason)
        self._tell(failed.shown)
        return _Ending(loss=None, description=failed.subject, synthetic=False, terms=0)

    def _note(self, failed: StepFailedError, *, step: int) -> None:
        capture, assembler = failed.capture, self._assembler
        diagnosis = Diagnosis(failed, self._earlier)
        place = assembler.place_of(capture) if capture.graph.nodes else None
        assembler.note(diagnosis.record(place, assembler.site_of, step=step, named=self._named))
        capture.close()

    def put_back_gradients(self) -> None:
        """Give leaves outside the model the gradients that they came with."""
        for leaf, gradient in self._others.items():
            leaf.grad = gradient

    def _step(self, probe: OptimizerProbe) -> list[float] | None:
        """Make an optimizer step; return the norms of the updates, None where it cannot be made."""
        reason = probe.obstacle
        if reason is None:
            try:
                return probe.step()
            except UserCodeError as error:
                reason = _first_line(error)
        self._assembler.skip("update norms and probing steps", reason)
        return None

    def _probe(self, probe: OptimizerProbe, steps: int) -> None:
        for number in range(1, steps + 1):
            try:
                capture, ending, measured = self._backward()
            except StepFailedError as failed:
                self._note(failed, step=number)
                self._assembler.skip(f"probing from step {number} on", _first_line(failed))
                return
            except GradscopeError as error:
                self._assembler.skip(f"probing from step {number} on", _first_line(error))
                return
            self._assembler.add_step(
                "probe",
                capture,
                measured,
                loss=ending.loss,
                optimizer=probe.description,
            )
            capture.close()
            if number < steps and self._step(probe) is None:
                return

    def _backward(self) -> tuple[StepCapture, _Ending, Measurements]:
        for tensor in (*self._named.parameters, *self._others):
            tensor.grad = None
        capture = StepCapture(self._named.parameters, opaque=self._opaque)
        with torch.inference_mode(False), torch.enable_grad():
            outcome = self._forward(capture)
            capture.trace(outcome.loss)
            for leaf in capture.other_leaves():
                self._others.setdefault(leaf, leaf.grad)
                leaf.grad = None
            measured = _measured(capture, outcome)
        self._earlier.append(capture.sites)
        return capture, _Ending.of(outcome), measured

    def _forward(self, capture: StepCapture) -> Outcome:
        try:
            with nullcontext() if self._opaque else watchable(), capture.forward():
                return self._target.forward()
        except GradscopeError as error:
            raised = autograd_error(error)
            if raised is None:
                raise
            raise StepFailedError(error, raised, capture, subject_of(error)) from raised


def _measured(capture: StepCapture, outcome: Outcome) -> Measurements:
    try:
        return capture.backward(outcome.loss, outcome.grad_output)
    except GradscopeError:
        raise
    except Exception as error:
        shown = backward_failed(capture, error)
        raise StepFailedError(shown, error, capture, outcome.description) from error


def _first_line(error: GradscopeError) -> str:
    cause = error.__cause__
    if cause is None:
        return error.what
    text = str(cause).splitlines() or [""]
    return f"{error.what}: {type(cause).__name__}: {text[0]}"
