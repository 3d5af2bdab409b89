"""Records one judged step of a target, the steps before and after it, and the probes."""

import platform
import sys
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType

import torch
from torch import nn

from gradscope.capture.compiler import is_compiled
from gradscope.capture.errors import StepFailedError
from gradscope.capture.naming import NamedModel, name_model, shape_of
from gradscope.capture.source.definitions import Definitions
from gradscope.capture.source.lines import NUMBERED, is_users
from gradscope.capture.source.statements import written_definitions
from gradscope.capture.step.assemble import Assembler
from gradscope.capture.step.diagnosis import Diagnosis
from gradscope.capture.step.graph import tensors
from gradscope.errors import GradscopeError, UserCodeError
from gradscope.probes.clipping import ClipProbe
from gradscope.probes.context import ProbeContext
from gradscope.probes.micro_batches.batch_division import divide
from gradscope.probes.optimizer_steps import OptimizerProbe, describe_optimizer
from gradscope.probes.registry import probe_making, record_none, run_probes
from gradscope.probes.snapshot import preserved
from gradscope.progress import tell_stage
from gradscope.recording.meta import repository_of
from gradscope.recording.origin import Environment, TargetRecord
from gradscope.recording.records import (
    Recording,
)
from gradscope.session.steps import Ending, Stepper, Training, WatchedStep, after_steps
from gradscope.target.members import plain
from gradscope.target.optimizers import set_learning_rate, with_trial_optimizer
from gradscope.target.options import Trial
from gradscope.target.target import Target
from gradscope.version import __version__


def environment_of(named: NamedModel) -> Environment:
    """Return the environment in which a model runs."""
    # A set would name them in another order in each process, because texts are hashed at random.
    devices = dict.fromkeys(str(parameter.device) for parameter in named.parameters)
    return Environment(
        python=platform.python_version(),
        torch=str(torch.__version__),
        platform=f"{platform.system()} {platform.machine()}",
        device=", ".join(devices) or "cpu",
        threads=torch.get_num_threads(),
    )


def target_record(target: Target, *, loss: str, synthetic_loss: bool) -> TargetRecord:
    """Return the record that describes a target.

    Args:
        target: The target that ran.
        loss: Origin of its loss.
        synthetic_loss: Whether gradscope guessed the loss.
    """
    folder = Path.cwd()
    return TargetRecord(
        name=target.name,
        model=_class_name(target.model),
        batch=_batch_text(target.batch),
        loss=loss,
        optimizer=describe_optimizer(target.optimizer) if target.optimizer else None,
        mode="train" if target.model.training else "eval",
        seed=target.seed,
        synthetic_loss=synthetic_loss,
        guessed=target.guessed,
        root=str(folder),
        repository=str(repository_of(folder)),
    )


def _class_name(model: nn.Module) -> str:
    # DDP and compiled modules have the class of their wrapper.
    return type(plain(model)).__name__


def _batch_text(batch: object) -> str:
    shapes = [shape_of(tensor) for tensor in tensors(batch)]
    return ", ".join(f"{shape.dtype}{list(shape.dims)}" for shape in shapes) or type(batch).__name__


def record(
    target: Target,
    *,
    trial: Trial,
    eager: bool,
    command: str,
    definitions: Definitions | None = None,
    tell: Callable[[GradscopeError], None] | None = None,
) -> Recording:
    """Run, record and probe a target, restore its state, and return the recording.

    Args:
        target: The target to run.
        trial: The optimizer steps to make before and after the judged one.
        eager: Whether the target runs compiled code eagerly.
        command: The command, for the record.
        definitions: The lines that made the model's modules, if their construction was observed.
        tell: Called with the exception if autograd ended the step. The recording then holds
            everything recorded before.
    """
    if trial.micro_batches is not None:
        divide(target.batch, trial.micro_batches)  # reported before anything runs
    tried = with_trial_optimizer(target, trial)
    # Only the user's own optimizer says which parameters are trained.
    named = name_model(target.model, target.optimizer)
    definitions = definitions or written_definitions(named)
    definitions.let_stand_in(target.optimizer, tried.optimizer)
    assembler = Assembler(
        named,
        version=__version__,
        command=command,
        environment=environment_of(named),
        definitions=definitions,
    )
    watch = _Watch(
        tried,
        named,
        assembler,
        definitions=definitions,
        opaque=is_compiled(target.model) and not eager,
        tell=tell or (lambda error: None),
        clipping=None
        if trial.clipping is None
        else ClipProbe(named.parameters, trial.clipping.with_own_norm(target.clip_grad_norm)),
    )
    # The forward may hold a loss with weights and buffers of its own.
    state = preserved(target.model, target.optimizer, target.batch, target.forward)
    with _shown_at_users_lines(), state:
        try:
            set_learning_rate(tried, trial)
            described = watch.run(trial)
        finally:
            # Also after an exception: the script may go on with these objects.
            watch.put_back_gradients()
            # A loader's workers would stay until the end of the process.
            target.batches.close()
    return assembler.finish(described)


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
        clipping: ClipProbe | None,
    ) -> None:
        self._tell = tell
        self._clipping = clipping
        self._named = named
        self._assembler = assembler
        self._definitions = definitions
        self._opaque = opaque
        self._stepper = Stepper(named, opaque=opaque)
        self._probe = OptimizerProbe(named.parameters, target.optimizer)
        self._training = Training(target, self._stepper, self._probe, assembler, clipping)
        if not NUMBERED:
            assembler.skip("lines and module calls", "this torch exposes no sequence numbers")
        if any(isinstance(module, torch.jit.ScriptModule) for module in named.modules):
            assembler.skip("lines inside scripted modules", "TorchScript runs them, not Python")
        if opaque:
            assembler.skip(
                "lines and module calls",
                "the model is compiled, and compiled code cannot be observed; --eager shows it",
            )

    def run(self, trial: Trial) -> TargetRecord:
        """Make all steps, and return the record that describes the target."""
        training = self._training
        try:
            step = training.judged_step(
                trial.steps,
                1 if trial.clipping is None else trial.clipping.batches,
                lambda first: probe_making(self._context(first, trial)),
            )
        except StepFailedError as failed:
            ending = self._end(failed)
            self._note_clipping(trial)
        else:
            ending = step.ending
            self._note_clipping(trial)
            self._judge(step, trial)
        return target_record(
            training.target, loss=ending.description, synthetic_loss=ending.synthetic
        )

    def _note_clipping(self, trial: Trial) -> None:
        if self._clipping is not None:
            self._assembler.note(*self._clipping.records(trial.steps))

    def _judge(self, step: WatchedStep, trial: Trial) -> None:
        """Run the probes of a step, make the optimizer step, and continue with later steps."""
        capture, measured, probe = step.capture, step.measured, self._probe
        probe_steps = trial.probe_steps
        self._assembler.position_of(capture)  # first, so that its graph is the recording's first
        if trial.keep_gradients != "none":
            self._assembler.keep_gradients(trial.keep_gradients)
        run_probes(self._context(step, trial), is_trained=self._training.made > 0)
        wants_steps = probe.is_users or probe_steps > 0
        # After the probes, which need the weights that made the gradients.
        updates = self._step() if wants_steps else None
        self._assembler.add_step(
            "step",
            capture,
            measured,
            loss=step.ending.loss,
            optimizer=probe.description if probe.is_users else None,
            update_norms=updates if probe.is_users else None,
        )
        capture.close()
        if updates is not None:
            self._go_on(probe_steps)

    def _context(self, step: WatchedStep, trial: Trial) -> ProbeContext:
        return ProbeContext(
            target=self._training.target,
            named=self._named,
            assembler=self._assembler,
            definitions=self._definitions,
            capture=step.capture,
            measured=step.measured,
            loss=step.ending.loss,
            terms=step.ending.terms,
            opaque=self._opaque,
            reruns=trial.probe_steps > 0,
            random_states=step.random_states,
            micro_batches=trial.micro_batches,
            overfit=trial.overfit,
        )

    def _end(self, failed: StepFailedError) -> Ending:
        """Record the judged step as far as it ran before autograd ended it."""
        made = self._training.made
        kind = type(failed.raised).__name__
        reason = failed.what if failed.raised is failed.shown else f"{failed.what} ({kind})"
        self._assembler.add_broken_step(failed.capture, reason=reason)
        self._note(failed, step=made)
        record_none(self._assembler, reason)
        self._tell(after_steps(made, failed.shown) if made else failed.shown)
        return Ending(loss=None, description=failed.subject, synthetic=False, terms=0)

    def _note(self, failed: StepFailedError, *, step: int) -> None:
        capture, assembler = failed.capture, self._assembler
        diagnosis = Diagnosis(failed, self._stepper.earlier)
        position = assembler.position_of(capture) if capture.graph.nodes else None
        assembler.note(diagnosis.record(position, assembler.site_of, step=step, named=self._named))
        capture.close()

    def put_back_gradients(self) -> None:
        """Restore the gradients of leaves outside the model."""
        self._stepper.put_back_gradients()

    def _step(self) -> list[float | None] | None:
        """Make an optimizer step; return the norms of the updates, None if it cannot be made."""
        reason = self._probe.skip_reason
        if reason is None:
            try:
                return self._probe.step()
            # An optimizer that fails costs only the later steps: the judged one is measured.
            except UserCodeError as error:
                reason = _first_line(error)
        self._assembler.skip("update norms and probe steps", reason)
        return None

    def _go_on(self, steps: int) -> None:
        """Make probe steps: each is a backward after another optimizer step."""
        target, made = self._training.target, self._training.made
        for number in range(1, steps + 1):
            tell_stage(f"probing step {number} of {steps}")
            try:
                step = self._stepper.make(target)
            except StepFailedError as failed:
                self._note(failed, step=made + number)
                self._assembler.skip(f"probe steps from step {number} on", _first_line(failed))
                return
            except GradscopeError as error:
                self._assembler.skip(f"probe steps from step {number} on", _first_line(error))
                return
            self._assembler.add_step(
                "probe",
                step.capture,
                step.measured,
                loss=step.ending.loss,
                optimizer=self._probe.description,
            )
            step.capture.close()
            # No step behind the last backward, after which nothing is measured.
            if number < steps and self._step() is None:
                return


def _first_line(error: GradscopeError) -> str:
    cause = error.__cause__
    if cause is None:
        return error.what
    text = str(cause).splitlines() or [""]
    return f"{error.what}: {type(cause).__name__}: {text[0]}"


_BETWEEN = (str(Path(__file__).parents[1]), torch.overrides.__file__)
"""Files whose frames stand between a function of torch and the program only while it is watched."""


@contextmanager
def _shown_at_users_lines() -> Iterator[None]:
    """Show each warning once, at the program's line, while a program is run several times.

    A warning with a `stacklevel` of 2 would name a line of gradscope, which calls the function for
    the program, and each probe would repeat it. Warnings that the program records itself are all
    recorded.
    """
    original = warnings._showwarnmsg  # type: ignore[attr-defined]
    shows = warnings._showwarnmsg_impl  # type: ignore[attr-defined]
    shown: set[tuple[str, type[Warning], str, int]] = set()

    def show(message: warnings.WarningMessage) -> None:
        if message.filename.startswith(_BETWEEN):
            frame = _users_frame(sys._getframe(1))
            if frame is not None:
                message.filename, message.lineno = frame.f_code.co_filename, frame.f_lineno
                message.line = None
        is_recorded = warnings._showwarnmsg_impl is not shows  # type: ignore[attr-defined]
        key = (str(message.message), message.category, message.filename, message.lineno)
        if is_recorded or key not in shown:
            shown.add(key)
            original(message)

    warnings._showwarnmsg = show  # type: ignore[attr-defined]
    try:
        yield
    finally:
        warnings._showwarnmsg = original  # type: ignore[attr-defined]


def _users_frame(frame: FrameType | None) -> FrameType | None:
    while frame is not None and not is_users(frame.f_code):
        frame = frame.f_back
    return frame
