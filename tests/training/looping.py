"""Training by gradscope and by a plain loop, on equal models and batches."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace

import torch
from torch import Tensor, nn

from gradscope.recording.records import Recording
from gradscope.session.inspection import record
from gradscope.target.batches import LoadedBatches
from gradscope.target.loading import target_from_objects
from gradscope.target.options import Trial

SEED = 5

MakeOptimizer = Callable[[nn.Module], torch.optim.Optimizer]


@dataclass
class Seen:
    """What a loop saw, step by step."""

    losses: list[float] = field(default_factory=list)
    norms: list[list[float | None]] = field(default_factory=list)


def looped(
    model: nn.Module, loader: Iterable, loss_fn: Callable, optimizer, steps: int, seed=SEED
) -> Seen:
    """Train as a script does; the last step is not followed by the optimizer's."""
    seen = Seen()
    batches = iter(loader)
    for step in range(steps + 1):
        batch = next(batches, None)
        if batch is None:
            batches = iter(loader)
            batch = next(batches)
        torch.manual_seed(seed + step)
        model.zero_grad()
        loss = loss_fn(model, batch)
        loss.backward()
        seen.losses.append(loss.item())
        seen.norms.append(norms_of(model))
        if step < steps:
            optimizer.step()
    return seen


def norms_of(model: nn.Module) -> list[float | None]:
    return [None if p.grad is None else norm(p.grad) for p in model.parameters()]


def norm(gradient: Tensor) -> float:
    values = gradient.coalesce().values() if gradient.is_sparse else gradient
    return values.double().norm().item()


def watched(
    model: nn.Module,
    loader: Iterable | None,
    loss_fn: Callable,
    own: torch.optim.Optimizer | None = None,
    *,
    seed: int | None = SEED,
    batch: object = None,
    tell=None,
    **trial: object,
) -> Recording:
    """Train under watch; without a loader, on one batch."""
    batches = None if loader is None else LoadedBatches(loader, "loader", "test")
    first = batch if batches is None else batches.first
    target = target_from_objects(model, first, loss_fn, optimizer=own, seed=seed)
    if batches is not None:
        target = replace(target, batches=batches)
    chosen = Trial(**{"probe_steps": 0, **trial})
    return record(target, trial=chosen, eager=False, command="inspect", tell=tell)


def seen_in(recording: Recording) -> Seen:
    """Return the training steps and the judged one as a loop would have seen them."""
    seen = Seen()
    for step in recording.steps:
        if step.kind == "probe":
            continue
        stats = {s.parameter: s for s in recording.parameter_stats if s.step == step.index}
        seen.losses.append(step.loss)
        seen.norms.append([s.gradient and s.gradient.norm for _, s in sorted(stats.items())])
    return seen
