"""The Python interface: inspects objects that exist already."""

from collections.abc import Callable, Iterable, Iterator

import torch
from torch import nn

from gradscope.capture.source.definitions import Definitions
from gradscope.errors import GradscopeError
from gradscope.probes.snapshot import RandomStates
from gradscope.recording.stored_gradient import KeepMode
from gradscope.rules.engine import check_settings, judge
from gradscope.rules.selection import parsed_selectors
from gradscope.rules.settings import DEFAULT_SETTINGS, Settings
from gradscope.session.arguments import check_arguments, documented
from gradscope.session.inspection import record
from gradscope.session.report import Report
from gradscope.target.batches import Batches, LoadedBatches
from gradscope.target.loading import target_from_objects
from gradscope.target.options import TargetOptions, Trial
from gradscope.target.target import Target


@documented(Trial, TargetOptions, Settings)
def inspect(  # noqa: PLR0913, D417 - as many things can be chosen, which their options document
    model: nn.Module,
    batch: object,
    loss_fn: Callable[..., object] | str | None = None,
    *,
    optimizer: torch.optim.Optimizer | None = None,
    grad_output: torch.Tensor | str | None = None,
    steps: int = 0,
    probe_steps: int = 3,
    micro_batches: int | None = None,
    keep_gradients: KeepMode = "none",
    eager: bool = False,
    select: str | Iterable[str] = (),
    ignore: str | Iterable[str] = (),
) -> Report:
    """Run one forward and backward, and report the gradient of every parameter and tensor.

    The model, its gradients, the optimizer and every random state are left as they were.

    Args:
        model: Any module. It runs in its current mode, train or eval.
        batch: The argument of the model: a tensor, a tuple, a mapping of keyword arguments, or a
            pair of inputs and target if there is a `loss_fn`. Or a `DataLoader` or an iterator of
            such batches: its first batch is inspected, the next ones are for `steps`.
        loss_fn: Called with the output and the target (or the batch), or with the model and the
            batch if its first parameter is called `model`; or the name of a loss: `cross-entropy`,
            `mse`, `mean`, `sum-squares`. Without it, the output's own loss is used.
        optimizer: Used to measure how far its step would move each parameter.
        grad_output: The gradient to start backward from, if the output is no scalar and there is no
            loss.

    If autograd raises an exception, in backward or because the loss has no graph, the report
    contains it as a finding, together with everything recorded before.

    Raises:
        GradscopeError: The model gives no loss, or an argument is wrong.
    """
    target = target_from_objects(
        model, batches_of(batch), loss_fn, optimizer=optimizer, grad_output=grad_output
    )
    # No configuration file is read: a call gives the same result wherever it runs.
    settings = Settings(select=parsed_selectors(select), ignore=parsed_selectors(ignore))
    trial = trial_of(
        steps=steps,
        probe_steps=probe_steps,
        micro_batches=micro_batches,
        keep_gradients=keep_gradients,
    )
    return inspect_target(target, trial=trial, eager=eager, command="inspect", settings=settings)


def batches_of(batch: object) -> Batches:
    """Return the batches of a loader, or the one batch. The random states do not change.

    Other iterables are ambiguous: they may be several batches or one.

    Raises:
        GradscopeError: The loader is empty, or raised.
    """
    if not isinstance(batch, torch.utils.data.DataLoader | Iterator):
        return Batches(batch)
    random_states = RandomStates.now()  # a loader that shuffles draws from it
    try:
        return LoadedBatches(batch, "batch", type(batch).__name__)
    finally:
        random_states.restore()


def trial_of(
    *,
    steps: int,
    probe_steps: int,
    micro_batches: int | None = None,
    keep_gradients: KeepMode = "none",
) -> Trial:
    """Return the settings for running a target.

    Raises:
        GradscopeError: A number of steps or parts is not valid, or a choice is unknown.
    """
    check_arguments(
        Trial,
        steps=steps,
        probe_steps=probe_steps,
        micro_batches=micro_batches,
        keep_gradients=keep_gradients,
    )
    return Trial(
        steps=steps,
        probe_steps=probe_steps,
        micro_batches=micro_batches,
        keep_gradients=keep_gradients,
    )


def inspect_target(
    target: Target,
    *,
    trial: Trial,
    eager: bool,
    command: str,
    definitions: Definitions | None = None,
    settings: Settings = DEFAULT_SETTINGS,
    tell: Callable[[GradscopeError], None] | None = None,
) -> Report:
    """Run and record a target, judge it by the rules, and return the report.

    An autograd exception ends the step but not the inspection. It becomes a finding and is passed
    to `tell`.

    Raises:
        GradscopeError: The settings name a rule or a threshold that does not exist.
    """
    # First, because a run may take long.
    check_settings(settings)
    recording = record(
        target,
        trial=trial,
        eager=eager,
        command=command,
        definitions=definitions,
        tell=tell,
    )
    return Report.from_recording(recording, judge(recording, settings))
