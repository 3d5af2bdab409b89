"""Describes the target and the environment of an inspection as records."""

import platform
from pathlib import Path

import torch
from torch import nn

from gradscope.capture.naming import NamedModel, shape_of
from gradscope.capture.step.edges import tensors
from gradscope.probes.optimizer_steps import describe_optimizer
from gradscope.recording.records import Environment, TargetRecord
from gradscope.recording.run_header import repository_of
from gradscope.target.target import Target


def environment_of(named: NamedModel) -> Environment:
    """Return the environment in which a model runs."""
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
    return type(getattr(model, "_orig_mod", model)).__name__


def _batch_text(batch: object) -> str:
    shapes = [shape_of(tensor) for tensor in tensors(batch)]
    return ", ".join(f"{shape.dtype}{list(shape.dims)}" for shape in shapes) or type(batch).__name__
