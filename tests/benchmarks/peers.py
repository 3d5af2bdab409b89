"""Other tools on the same step, as far as they are installed."""

import importlib.util
import tempfile
from collections.abc import Callable, Iterator

import torch
from models import Step


def built_in(step: Step) -> dict[str, Callable[[], None]]:
    """Return what torch itself offers, by name."""
    return {
        "clip_grad_norm_": lambda: _clipped(step),
        "anomaly mode": lambda: _anomaly(step),
    }


def installed(step: Step) -> Iterator[tuple[str, Callable[[], None]]]:
    """Yield the tools that are there, by name; they are set up only then."""
    if importlib.util.find_spec("tensorboard"):
        yield "tensorboard histograms", _tensorboard(step)
    if importlib.util.find_spec("wandb"):
        yield "wandb.watch", _wandb(step)
    if importlib.util.find_spec("torchlens"):
        yield "torchlens trace (forward)", _torchlens(step)


def _clipped(step: Step) -> None:
    step.optimizer.zero_grad()
    step.loss().backward()
    torch.nn.utils.clip_grad_norm_(step.model.parameters(), 1.0)
    step.optimizer.step()


def _anomaly(step: Step) -> None:
    with torch.autograd.detect_anomaly(check_nan=True):
        step.bare()


def _tensorboard(step: Step) -> Callable[[], None]:
    from torch.utils.tensorboard import SummaryWriter

    writer = SummaryWriter(tempfile.mkdtemp())

    def run() -> None:
        step.bare()
        for name, parameter in step.model.named_parameters():
            writer.add_histogram(name, parameter.grad)

    return run


def _wandb(step: Step) -> Callable[[], None]:
    import wandb

    settings = wandb.Settings(silent=True, mode="offline", disable_git=True)
    offline = wandb.init(dir=tempfile.mkdtemp(), settings=settings)

    def run() -> None:
        offline.watch(step.model, log="gradients", log_freq=1)
        step.bare()
        offline.log({})
        offline.unwatch(step.model)

    return run


def _torchlens(step: Step) -> Callable[[], None]:
    import torchlens

    def run() -> None:
        torchlens.trace(step.model, step.inputs)

    return run
