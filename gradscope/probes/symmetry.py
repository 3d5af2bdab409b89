"""Looks for units of a layer that have equal weights and equal gradients."""

import torch
from torch import Tensor, nn
from torch.nn.modules.conv import _ConvTransposeNd

from gradscope.probes.scene import Scene
from gradscope.probes.user_code_search import UserCodeSearch
from gradscope.recording.evidence.symmetry import SymmetryRecord

TOLERANCE = 1e-6
"""Units are equal if their difference is at most this share of their norm."""

_FEW = 8
"""So many rows are compared first: of most weights no two are equal."""


def examine_symmetry(scene: Scene) -> str | None:
    """Note the weights whose rows are equal, and equal in their gradients."""
    found = []
    for record in scene.named.parameter_records:
        owner = scene.named.modules[record.module]
        weight, gradient = _rows(scene.named.parameters[record.index], owner)
        if weight is None or gradient is None:
            continue
        alike = _alike(weight, gradient)
        if alike > 1:
            found.append((record.index, len(weight), alike))
    site = UserCodeSearch(scene).line_that_fills() if found else None
    for parameter, rows, count in found:
        scene.assembler.note(SymmetryRecord(parameter=parameter, rows=rows, alike=count, site=site))
    return None


def _rows(parameter: nn.Parameter, owner: nn.Module) -> tuple[Tensor | None, Tensor | None]:
    """Return weight and gradient with a row for each unit, None for what has no units."""
    gradient = parameter.grad
    if (
        gradient is None
        or parameter.dim() < 2
        or isinstance(owner, nn.Embedding | nn.EmbeddingBag)
        or not _is_plain(parameter)
        or not _is_plain(gradient)
    ):
        return None, None
    units = 1 if isinstance(owner, _ConvTransposeNd) and owner.groups == 1 else 0
    rows = parameter.shape[units]
    if rows < 2 or parameter.numel() < 2 * rows:
        return None, None
    both = (tensor.detach().movedim(units, 0).flatten(1) for tensor in (parameter, gradient))
    weight, gradient = both
    return weight, gradient


def _is_plain(tensor: Tensor) -> bool:
    return tensor.layout is torch.strided and tensor.is_floating_point() and not tensor.is_meta


def _alike(weight: Tensor, gradient: Tensor) -> int:
    """Return how many rows are as the first that gets a gradient, this one included."""
    learning = gradient[: 4 * _FEW].ne(0).any(1).nonzero()
    if not len(learning):
        return 0
    first = int(learning[0])
    few = torch.arange(first, len(weight), max(1, (len(weight) - first) // _FEW))
    if first + 1 < len(weight):
        few = torch.cat([few, torch.tensor([first + 1])])
    few = few[few != first].unique().to(weight.device)
    if not _equal_rows(weight[few], weight[first]).any():
        return 0
    equal = _equal_rows(weight, weight[first]) & _equal_rows(gradient, gradient[first])
    return int(equal.sum())


def _equal_rows(rows: Tensor, row: Tensor) -> Tensor:
    wide = row.double()
    distances = torch.linalg.vector_norm(rows.double() - wide, dim=1)
    return torch.le(distances, TOLERANCE * torch.linalg.vector_norm(wide))
