"""Asks the loss itself whether it depends on parameters to which no gradient came.

What a forward does with numbers that it took out of torch cannot be followed. So the parameters
behind such a cut are given other values, and the forward is run again: where the loss stays the
same to the last bit, nothing of them leads to it.
"""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager

import torch
from torch import Tensor

from gradscope.capture.cut_records import CutFinder
from gradscope.errors import GradscopeError
from gradscope.probes.scene import Scene
from gradscope.recording.evidence.parameters import InfluenceRecord

MOST_GROUPS = 8
"""So many groups of parameters are asked about, each by a forward."""


def examine_influence(scene: Scene) -> str | None:
    """Change the parameters of which it is not known whether they lead to the loss."""
    groups = _groups(scene)
    if not groups:
        return None
    if scene.opaque or not scene.reruns:
        return "the forward is not run again"
    if len(groups) > MOST_GROUPS:
        return f"{len(groups)} groups of parameters are too many to ask about"
    try:
        before = _loss(scene)
        if not torch.equal(before, _loss(scene)):
            return "the loss is another each time"
        for group in groups:
            with _other_values([scene.named.parameters[place] for place in group]):
                changes = not torch.equal(before, _loss(scene))
            scene.assembler.note(InfluenceRecord(parameters=group, changes_loss=changes))
    except GradscopeError:
        return "the forward raised an exception when it was run with other values"
    return None


def _groups(scene: Scene) -> list[tuple[int, ...]]:
    """Return the parameters without a gradient by the cuts that may explain it, if any may."""
    lost = {
        id(scene.named.parameters[record.index]): record.index
        for record in scene.named.parameter_records
        if record.requires_grad and record.index not in scene.measured.reached
    }
    finder = CutFinder(scene.capture, lost)
    groups: dict[object, list[int]] = {}
    for place in lost.values():
        cuts = finder.unsettled(place)
        if cuts:
            groups.setdefault(cuts, []).append(place)
    return [tuple(places) for places in groups.values()]


def _loss(scene: Scene) -> Tensor:
    return scene.forward().loss.detach().clone()


@contextmanager
def _other_values(parameters: Iterable[Tensor]) -> Iterator[None]:
    """Let the block run with noise in some parameters."""
    kept = [(parameter, parameter.detach().clone()) for parameter in parameters]
    generator = torch.Generator().manual_seed(0)
    try:
        for parameter, values in kept:
            noise = torch.randn(values.shape, generator=generator)
            parameter.data.copy_(noise)
        yield
    finally:
        for parameter, values in kept:
            parameter.data.copy_(values)
