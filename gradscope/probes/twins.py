"""Finds parameters that should be one and are two, and units that are equal."""

from collections.abc import Iterator
from itertools import combinations
from typing import Literal

import torch
from torch import Tensor, nn
from torch.nn.modules.conv import _ConvNd, _ConvTransposeNd

from gradscope.capture.reading import gradient_of, is_plain_float
from gradscope.capture.source.lines import Line
from gradscope.probes.context import ProbeContext
from gradscope.probes.user_code_search import UserCodeSearch
from gradscope.recording.evidence.parameters import SymmetryRecord, TwinRecord
from gradscope.target import members

Alike = Literal["storage", "values", "target"]


def probe_twins(context: ProbeContext) -> str | None:
    """Record parameters that share memory, and output layers that copy an embedding."""
    found: list[tuple[int, int, Alike]] = [(*pair, "storage") for pair in _sharing(context)]
    known = {pair[:2] for pair in found}
    found += [(*pair, "values") for pair in _copied(context) if pair not in known]
    found += [(*pair, "target") for pair in _followed_in_memory(context)]
    for first, second, line in _replaced_embeddings(context):
        site = context.assembler.site_of(line)
        context.assembler.note(TwinRecord(first=first, second=second, alike="replaced", site=site))
    copies = list(_copied_modules(context))
    if not found and not copies:
        return None
    search = UserCodeSearch(context)
    for first, second, alike in found:
        names = [context.named.parameter_records[position].name for position in (first, second)]
        site = search.line_that_copies(names, shares=alike != "values")
        context.assembler.note(TwinRecord(first=first, second=second, alike=alike, site=site))
    for first, second, attribute in copies:
        lines = search.assignments(attribute)
        context.assembler.note(
            TwinRecord(
                first=first,
                second=second,
                alike="modules",
                site=lines[0] if len(lines) == 1 else None,
            )
        )
    return None


def _copied_modules(context: ProbeContext) -> Iterator[tuple[int, int, str]]:
    """Yield the first parameters of modules beside each other that are equal in every parameter.

    With each pair comes the attribute that holds the second module. Layers in a list or sequence
    are left out: stacks often begin as copies of one layer.
    """
    trained = {id(parameter): position for position, parameter in _trained(context)}
    for parent in context.named.modules:
        if isinstance(parent, nn.Sequential | nn.ModuleList | nn.ModuleDict):
            continue
        for (_, one), (name, other) in combinations(members.named_children(parent), 2):
            pairs = _parameter_pairs(one, other)
            if not any(p.dim() > 1 for p, _ in pairs):
                continue
            positions = [(trained.get(id(p)), trained.get(id(q))) for p, q in pairs]
            first, second = positions[0]
            if first is None or second is None or any(None in both for both in positions):
                continue
            if all(_equal(p, q) for p, q in pairs if p.dim() > 1):
                yield first, second, name


def _replaced_embeddings(context: ProbeContext) -> Iterator[tuple[int, int, Line | None]]:
    """Yield the weight of an embedding and that of an output layer that keeps the one before it.

    With each pair comes the line that replaced the embedding.
    """
    trained = dict(_trained(context))
    positions = {id(parameter): position for position, parameter in trained.items()}
    for layer, parameter in trained.items():
        replaced = context.definitions.replacement(parameter)
        owner = None if replaced is None else replaced.module()
        if replaced is None or owner is None or "." not in replaced.name:
            continue  # who assigns another weight means to untie them
        path, _, name = replaced.name.rpartition(".")
        table = _submodule(owner, path)
        is_tied = isinstance(context.named.modules[_owner(context, layer)], nn.Linear)
        if isinstance(table, nn.Embedding) and is_tied:
            position = positions.get(id(getattr(table, name, None)))
            if position is not None and position != layer:
                yield position, layer, replaced.line


def _submodule(module: nn.Module, path: str) -> object:
    for name in path.split("."):
        module = getattr(module, name, None)  # type: ignore[assignment]
    return module


def _parameter_pairs(one: nn.Module, other: nn.Module) -> list[tuple[nn.Parameter, nn.Parameter]]:
    """Return the parameters of two modules that are built alike; none where they are not."""
    if type(one) is not type(other):
        return []
    mine, theirs = dict(members.named_parameters(one)), dict(members.named_parameters(other))
    if mine.keys() != theirs.keys() or any(mine[name] is theirs[name] for name in mine):
        return []
    return [(mine[name], theirs[name]) for name in mine]


def _sharing(context: ProbeContext) -> list[tuple[int, int]]:
    """Return pairs of parameters that share elements in memory."""
    by_address: dict[tuple[object, ...], list[int]] = {}
    for position, parameter in _trained(context):
        by_address.setdefault(_address(parameter), []).append(position)
    return [pair for positions in by_address.values() for pair in combinations(positions, 2)]


def _followed_in_memory(context: ProbeContext) -> list[tuple[int, int]]:
    """Return pairs of a parameter with a gradient and one without that share memory."""
    trained = {_address(parameter): position for position, parameter in _trained(context)}
    return [
        (trained[location], position)
        for position, parameter in enumerate(context.named.parameters)
        if gradient_of(parameter) is None
        and is_plain_float(parameter)
        and (location := _address(parameter)) in trained
    ]


def _address(parameter: Tensor) -> tuple[object, ...]:
    # Parameters tied through `.data` are different objects, and share only their memory.
    return (parameter.device, parameter.data_ptr(), parameter.numel(), parameter.dtype)


def _copied(context: ProbeContext) -> list[tuple[int, int]]:
    """Return pairs of an embedding's weight and a linear layer's with equal values."""
    trained = dict(_trained(context))
    owners = {position: context.named.modules[_owner(context, position)] for position in trained}
    tables = [position for position, owner in owners.items() if isinstance(owner, nn.Embedding)]
    layers = [position for position, owner in owners.items() if isinstance(owner, nn.Linear)]
    return [
        (table, layer)
        for table in tables
        for layer in layers
        if _equal(trained[table], trained[layer])
    ]


def _owner(context: ProbeContext, position: int) -> int:
    return context.named.parameter_records[position].module


def _trained(context: ProbeContext) -> list[tuple[int, nn.Parameter]]:
    return [
        (position, parameter)
        for position, parameter in enumerate(context.named.parameters)
        if parameter.requires_grad
        and gradient_of(parameter) is not None
        and parameter.numel() > 1
        and is_plain_float(parameter)
    ]


def _equal(one: Tensor, other: Tensor) -> bool:
    if one.shape != other.shape or one.dtype != other.dtype or one.device != other.device:
        return False
    # Most pairs differ in their first rows, and whole embeddings are large.
    few = slice(0, 4)
    if not torch.equal(one[few], other[few]) or not torch.equal(one, other):
        return False
    smallest, largest = one.detach().aminmax()
    return bool(smallest != largest)  # constants have no known origin


TOLERANCE = 1e-6
"""Maximum difference of equal units, relative to their norm."""

_CONSTANTS = frozenset({"constant_", "ones_", "zeros_"})
_FEW = 8
"""Number of rows compared first: most weights have no two equal rows."""


def probe_symmetry(context: ProbeContext) -> str | None:
    """Record the weights whose rows are equal, and have equal gradients."""
    found = []
    for record in context.named.parameter_records:
        owner = context.named.modules[record.module]
        weight, gradient = _rows(context.named.parameters[record.index], owner)
        if weight is None or gradient is None:
            continue
        alike = _alike(weight, gradient)
        if alike <= 1 and _are_exchangeable(context, record.index, weight, gradient):
            alike = len(weight)
        if alike > 1:
            found.append((record.index, len(weight), alike))
    site = UserCodeSearch(context).line_that_fills() if found else None
    for parameter, rows, count in found:
        context.assembler.note(
            SymmetryRecord(
                parameter=parameter,
                rows=rows,
                alike=count,
                site=_filling(context, parameter) or site,
            )
        )
    return None


def _filling(context: ProbeContext, parameter: int) -> int | None:
    """Return the line (a site) at which a function of `nn.init` made a parameter constant."""
    filled = context.definitions.initialisations.of(context.named.parameters[parameter])
    if filled is None or filled.function not in _CONSTANTS:
        return None
    return context.assembler.site_of(filled.line)


def _are_exchangeable(context: ProbeContext, index: int, weight: Tensor, gradient: Tensor) -> bool:
    """Return whether the model treats the units of a layer in the same way.

    This also holds if gradients add up to zero: all is constant after the units, and the gradients
    of the classes cancel. Every dimension with as many elements as there are units must have equal
    values and gradients.
    """
    owner = context.named.modules[context.named.parameter_records[index].module]
    if not isinstance(owner, nn.Linear | _ConvNd) or getattr(owner, "groups", 1) != 1:
        return False
    # Most weights differ in their first two rows, and the checks below read all parameters.
    if not weight[0].any() or not torch.equal(weight[1], weight[0]):
        return False
    parameters = context.named.parameters
    gradients = [g for g in map(gradient_of, parameters) if g is not None]
    if not all(map(is_plain_float, (*parameters, *gradients))):
        return False
    scale = max(float(torch.linalg.vector_norm(one)) for one in gradients)
    others = [p for position, p in enumerate(parameters) if position != index]
    dims = [(other, dim) for other in others for dim in _unit_dims(other, len(weight))]
    return (
        any(dim > 0 for _, dim in dims)
        and _are_equal(weight, 0.0)
        and _are_equal(gradient, scale)
        and all(_is_equal_along(other, dim, scale) for other, dim in dims)
    )


def _is_equal_along(parameter: Tensor, dim: int, scale: float) -> bool:
    gradient = gradient_of(parameter)
    equal = _are_equal(parameter.movedim(dim, 0), 0.0)
    return equal and (gradient is None or _are_equal(gradient.movedim(dim, 0), scale))


def _unit_dims(parameter: Tensor, units: int) -> list[int]:
    """Return the dimensions along which a parameter may have a value per unit."""
    sizes = list(parameter.shape[:2] if parameter.dim() > 3 else parameter.shape)
    return [dim for dim, size in enumerate(sizes) if size == units or (dim and size % units == 0)]


def _are_equal(rows: Tensor, scale: float) -> bool:
    """Return whether rows are equal, up to rounding at some scale."""
    rows = rows.detach().double()
    norm = max(scale, float(torch.linalg.vector_norm(rows[0])))
    return bool(torch.le((rows - rows[0]).abs().max(), TOLERANCE * norm))


def _rows(parameter: nn.Parameter, owner: nn.Module) -> tuple[Tensor | None, Tensor | None]:
    """Return weight and gradient with a row per unit, None for parameters without units."""
    gradient = gradient_of(parameter)
    if (
        gradient is None
        or parameter.dim() < 2
        or isinstance(owner, nn.Embedding | nn.EmbeddingBag)
        or not is_plain_float(parameter)
        or not is_plain_float(gradient)
    ):
        return None, None
    # The output channels of a transposed convolution are its second dimension.
    units = 1 if isinstance(owner, _ConvTransposeNd) and owner.groups == 1 else 0
    rows = parameter.shape[units]
    if rows < 2 or parameter.numel() < 2 * rows:
        return None, None
    both = (tensor.detach().movedim(units, 0).flatten(1) for tensor in (parameter, gradient))
    weight, gradient = both
    return weight, gradient


def _alike(weight: Tensor, gradient: Tensor) -> int:
    """Return the number of rows equal to the first one with a gradient, itself included."""
    # A row without a gradient may be unused: it says nothing about symmetry.
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
    # In float64: equal rows of half types would otherwise differ by rounding of the difference.
    distances = torch.linalg.vector_norm(rows.double() - wide, dim=1)
    return torch.le(distances, TOLERANCE * torch.linalg.vector_norm(wide))
