"""Looks for parameters that were meant as one and are two."""

from itertools import combinations

import torch
from torch import Tensor, nn

from gradscope.capture.reading import is_plain_float
from gradscope.probes.scene import Scene
from gradscope.probes.user_code_search import UserCodeSearch
from gradscope.recording.evidence.parameters import TwinRecord


def examine_twins(scene: Scene) -> str | None:
    """Note parameters that share their memory, and output layers that copy an embedding."""
    found = [(*pair, "storage") for pair in _sharing(scene)]
    known = {pair[:2] for pair in found}
    found += [(*pair, "values") for pair in _copied(scene) if pair not in known]
    if not found:
        return None
    search = UserCodeSearch(scene)
    for first, second, alike in found:
        names = [scene.named.parameter_records[place].name for place in (first, second)]
        scene.assembler.note(
            TwinRecord(
                first=first,
                second=second,
                alike="storage" if alike == "storage" else "values",
                site=search.line_that_copies(names, shares=alike == "storage"),
            )
        )
    return None


def _sharing(scene: Scene) -> list[tuple[int, int]]:
    """Return pairs of parameters that hold the same elements in memory."""
    by_place: dict[tuple[object, ...], list[int]] = {}
    for place, parameter in _trained(scene):
        key = (parameter.device, parameter.data_ptr(), parameter.numel(), parameter.dtype)
        by_place.setdefault(key, []).append(place)
    return [pair for places in by_place.values() for pair in combinations(places, 2)]


def _copied(scene: Scene) -> list[tuple[int, int]]:
    """Return pairs of an embedding's weight and a linear layer's that hold equal numbers."""
    trained = dict(_trained(scene))
    owners = {place: scene.named.modules[_owner(scene, place)] for place in trained}
    tables = [place for place, owner in owners.items() if isinstance(owner, nn.Embedding)]
    layers = [place for place, owner in owners.items() if isinstance(owner, nn.Linear)]
    return [
        (table, layer)
        for table in tables
        for layer in layers
        if _equal(trained[table], trained[layer])
    ]


def _owner(scene: Scene, place: int) -> int:
    return scene.named.parameter_records[place].module


def _trained(scene: Scene) -> list[tuple[int, nn.Parameter]]:
    return [
        (place, parameter)
        for place, parameter in enumerate(scene.named.parameters)
        if parameter.requires_grad
        and parameter.grad is not None
        and parameter.numel() > 1
        and is_plain_float(parameter)
    ]


def _equal(one: Tensor, other: Tensor) -> bool:
    if one.shape != other.shape or one.dtype != other.dtype or one.device != other.device:
        return False
    few = slice(0, 4)
    if not torch.equal(one[few], other[few]) or not torch.equal(one, other):
        return False
    smallest, largest = one.detach().aminmax()
    return bool(smallest != largest)  # of constants nobody knows where they come from
