"""The Python interface: the same inspection on objects that are there already."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace

import torch
from torch import nn

from gradscope.capture.source.definitions import Definitions
from gradscope.errors import GradscopeError
from gradscope.probes.snapshot import RandomStates
from gradscope.recording.stored_gradient import KeepMode, check_keep_mode
from gradscope.rules.engine import check_settings, judge
from gradscope.rules.selection import parsed_selectors
from gradscope.rules.settings import DEFAULT_SETTINGS, Settings
from gradscope.session.inspection import record
from gradscope.session.report import Report
from gradscope.target.loader import Batches, LoadedBatches
from gradscope.target.objects import target_from_objects
from gradscope.target.options import Trial
from gradscope.target.target import Target


def inspect(  # noqa: PLR0913 - as many things can be chosen
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
        model: Any module; it runs in the mode, train or eval, that it is in.
        batch: What the model is called with: a tensor, a tuple, a mapping of keyword arguments, or
            a pair of inputs and target when there is a `loss_fn`. Or a `DataLoader` or an iterator
            of such batches: its first batch is inspected, the next ones are for `steps`.
        loss_fn: Called with the output and the target (or the batch), or with the model and the
            batch if its first parameter is called `model`; or the name of a loss: `cross-entropy`,
            `mse`, `mean`, `sum-squares`. Without one the output's own loss is taken.
        optimizer: Measures how far its step would move every parameter.
        grad_output: For outputs that are no scalar and without a loss: where backward starts.
        steps: Optimizer steps to make before the one that is inspected, with the optimizer or an
            assumed Adam: what goes wrong only after some training shows. A loader gives each step
            a batch of its own; else all are made on the one batch.
        probe_steps: Optimizer steps to try on a snapshot, which tell lasting trouble from that of
            the first step; 0 for none.
        micro_batches: Into so many parts the batch is divided, to compare their accumulated
            gradients with its own; `print(report)` and its JSON tell how they add up.
        keep_gradients: Keep the gradients themselves in the recording, which `report.save(path)`
            writes, so that `gradscope compare` can compare them: `exact`, every element, or
            `sketch`, 4,096 numbers of each large parameter.
        eager: Run a compiled model eagerly, to see its inside.
        select: Only these rules judge: codes, prefixes of codes, families and names of rules. No
            configuration file is read.
        ignore: These rules do not.

    Where autograd raises an exception, in backward or because the loss has no graph, the report
    says so in a finding, and holds what was seen by then.

    Raises:
        GradscopeError: When there is no way from the model to a loss, or an argument is wrong.
    """
    target = target_from_objects(
        model, batches_of(batch), loss_fn, optimizer=optimizer, grad_output=grad_output
    )
    settings = Settings(select=parsed_selectors(select), ignore=parsed_selectors(ignore))
    trial = trial_of(steps=steps, probe_steps=probe_steps, micro_batches=micro_batches)
    check_keep_mode(keep_gradients)
    trial = replace(trial, keep_gradients=keep_gradients)
    return inspect_target(target, trial=trial, eager=eager, command="inspect", settings=settings)


def batches_of(batch: object) -> Batches:
    """Return the batches of a loader, or the one batch; the random states stay as they are.

    Of other things that can be iterated nothing tells whether they are batches or a batch.

    Raises:
        GradscopeError: The loader is empty, or raised.
    """
    if not isinstance(batch, torch.utils.data.DataLoader | Iterator):
        return Batches(batch)
    random_states = RandomStates.now()  # which a loader that shuffles draws from
    try:
        return LoadedBatches(batch, "batch", type(batch).__name__)
    finally:
        random_states.restore()


def trial_of(*, steps: int, probe_steps: int, micro_batches: int | None = None) -> Trial:
    """Return how a target is run.

    Raises:
        GradscopeError: One of them is no number of steps, or of parts.
    """
    parts = 2 if micro_batches is None else micro_batches
    for name, number, least in (
        ("steps", steps, 0),
        ("probe_steps", probe_steps, 0),
        ("micro_batches", parts, 2),
    ):
        if isinstance(number, bool) or not isinstance(number, int) or number < least:
            raise GradscopeError(f"{name} is {number!r}, expected {least} or more")
    return Trial(steps=steps, probe_steps=probe_steps, micro_batches=micro_batches)


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
    """Run a target under watch, judge it by the rules, and report on it.

    An exception of autograd's ends the step and not the inspection: it becomes a finding, and is
    given to `tell`.

    Raises:
        GradscopeError: The settings name a rule or a threshold that does not exist.
    """
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
