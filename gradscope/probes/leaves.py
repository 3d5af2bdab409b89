"""Finds where leaves belong that require grad and are no parameters of the model."""

from collections.abc import Iterator, Mapping
from functools import partial
from types import BuiltinFunctionType, CellType, FunctionType, MethodType, ModuleType
from typing import NamedTuple

from torch import Tensor, nn

from gradscope.capture.source.lines import created
from gradscope.capture.source.statements import (
    assignments,
    is_only_filled_at_construction,
    is_only_made_at_construction,
)
from gradscope.capture.step.graph import Edge, leaves_behind, release, walk
from gradscope.errors import GradscopeError
from gradscope.probes.context import ProbeContext
from gradscope.probes.script_leaves import reads_gradients, unread_leaves
from gradscope.recording.evidence.parameters import LeafOrigin, LeafRecord
from gradscope.target import members

MOST_VALUES = 20_000
"""Maximum number of attribute values searched."""

# From an instance, because torch sets these attributes in `__init__`.
_MODULES_OWN = frozenset(vars(nn.Module()))

_NOT_ENTERED = (BuiltinFunctionType, FunctionType, MethodType, ModuleType, str, bytes, type)


class _Location(NamedTuple):
    """Location of a tensor."""

    name: str
    owner: int | None
    attribute: str
    container: str
    set_aside: bool
    origin: LeafOrigin


_FORWARDS = _Location("", None, "", "Parameter", False, "forward")
"""A parameter that the forward makes and stores nowhere."""


def probe_leaves(context: ProbeContext) -> str | None:
    """Record every leaf of the model or the batch that is no parameter."""
    capture = context.capture
    own = set(capture.parameter_nodes().values())
    leaves = {node: leaf for node, leaf in capture.graph.leaves.items() if node not in own}
    users = context.optimizers if context.of_run else (context.target.optimizer,)
    held = {id(p) for one in users if one for group in one.param_groups for p in group["params"]}
    leaves = {node: leaf for node, leaf in leaves.items() if id(leaf) not in held}
    if not leaves:
        return None
    positions = _positions(context, leaves)
    again = _leaves_of_another_forward(context)
    order = {key: number for number, key in enumerate(positions)}
    for node, leaf in sorted(leaves.items(), key=lambda item: order.get(id(item[1]), -1)):
        known = positions.get(id(leaf))
        position = _position(leaf, known, again)
        if position is None and known is not None and _is_made_at_construction(context, known):
            position = known
        if position is None and _is_made_in_forward(context, leaf):
            position = _FORWARDS
        if position is not None and not (position.origin == "input" and _is_read(context, leaf)):
            _note(context, node, leaf, position)
    if context.of_run and not context.capture.backwards.count and again is None:
        _note_inputs(context, {n: leaf for n, leaf in leaves.items() if id(leaf) not in positions})
    return None


def _note_inputs(context: ProbeContext, leaves: Mapping[int, Tensor]) -> None:
    """Record the inputs of a script whose gradient nothing reads."""
    nodes = {id(leaf): node for node, leaf in leaves.items()}
    if not any(parameter.requires_grad for parameter in context.named.parameters):
        return
    for leaf, known in unread_leaves(leaves.values()):
        context.assembler.note(
            LeafRecord(
                node=context.position.first_node + nodes[id(leaf)],
                name=known.name,
                origin="script" if known.is_kept else "input",
                numel=leaf.numel(),
                owner=None,
                attribute="",
                container=type(leaf).__name__,
                set_aside=False,
                site=context.assembler.site_of(known.line),
            )
        )


def _position(leaf: Tensor, known: _Location | None, again: set[int] | None) -> _Location | None:
    """Return the location of a leaf, None if it is not the model's.

    Args:
        leaf: The leaf.
        known: Known location of the leaf.
        again: Leaves of another forward (by `id`), None if there was none.
    """
    is_parameter = isinstance(leaf, nn.Parameter)
    is_new_each_time = again is not None and id(leaf) not in again
    if known is not None and known.origin in ("input", "computed"):
        return known
    if is_new_each_time:
        if not is_parameter:  # noise, or a copy of the input to differentiate
            return None
        return (known or _FORWARDS)._replace(origin="forward")
    if known is None or (again is None and not is_parameter):
        return None
    return known


def _is_made_in_forward(context: ProbeContext, leaf: Tensor) -> bool:
    """Return whether a module was made in a forward for this parameter, and stored nowhere.

    A script's forward is not run again to see whether it makes another.
    """
    registration = context.definitions.registration(leaf)
    return context.of_run and registration is not None and registration.in_forward


def _is_made_at_construction(context: ProbeContext, position: _Location) -> bool:
    """Return whether a script's module keeps a tensor from its construction on.

    A script's forward is not run again to see whether it makes another. A script that reads
    gradients may move such a tensor by hand.
    """
    if not context.of_run or position.owner is None:
        return False
    kind, attribute = type(context.named.modules[position.owner]), position.attribute
    line = assignments(kind).get(attribute)
    return (
        line is not None
        and _is_made_once(position, line.code.co_filename)
        and is_only_made_at_construction(kind, attribute)
        and not reads_gradients(line.code.co_filename)
    )


def _is_made_once(position: _Location, file: str) -> bool:
    """Return whether a tensor is an attribute, or an item of a list that only `__init__` fills."""
    within = position.name.split(".")
    if position.container in ("Tensor", "buffer"):
        return within[-1] == position.attribute
    is_item = position.container in ("list", "tuple", "dict") and within[-2:-1] == [
        position.attribute
    ]
    return is_item and is_only_filled_at_construction(file, position.attribute)


def _leaves_of_another_forward(context: ProbeContext) -> set[int] | None:
    if context.opaque or not context.reruns:
        return None
    try:
        graph = walk(context.forward().loss)
    except (GradscopeError, RuntimeError):  # the latter has no graph
        return None
    # Those of the first forward are still alive, so no `id` is used twice.
    found = {id(leaf) for leaf in graph.leaves.values()}
    graph.index.clear()
    graph.leaves.clear()
    release(graph.nodes)
    return found


def _is_read(context: ProbeContext, leaf: Tensor) -> bool:
    """Return whether the gradient of an input is used."""
    trains = any(parameter.requires_grad for parameter in context.named.parameters)
    return bool(context.capture.backwards.count or leaf._backward_hooks) or not trains


def _note(context: ProbeContext, node: int, leaf: Tensor, position: _Location) -> None:
    line = None
    if position.owner is not None and position.attribute:
        line = assignments(type(context.named.modules[position.owner])).get(position.attribute)
    registration = context.definitions.registration(leaf)
    if position.origin == "forward" and registration is not None:
        line = registration.line  # of the layer that is made anew
    context.assembler.note(
        LeafRecord(
            node=context.position.first_node + node,
            name=position.name,
            origin=position.origin,
            numel=leaf.numel(),
            owner=position.owner,
            attribute=position.attribute,
            container=position.container,
            set_aside=position.set_aside,
            site=context.assembler.site_of(line),
        )
    )


def _positions(context: ProbeContext, leaves: Mapping[int, Tensor]) -> dict[int, _Location]:
    """Return the locations of leaves (by `id`), each under its first name."""
    wanted = {id(leaf) for leaf in leaves.values()}
    found: dict[int, _Location] = {}
    for tensor, name in _named_tensors(context.target.batch, "batch", set()):
        if id(tensor) in wanted:
            kind = type(context.target.batch).__name__
            found.setdefault(id(tensor), _Location(name, None, "", kind, False, "input"))
    computed: dict[int, _Location] = {}
    for tensor, position in _stored_tensors(context):
        if id(tensor) in wanted:
            found.setdefault(id(tensor), position)
        # A tensor computed once in `__init__`, such as a scaled table, has leaves that no name
        # holds.
        for leaf in _computed_from(context, tensor, wanted):
            computed.setdefault(leaf, position._replace(origin="computed"))
    return computed | found


def _computed_from(context: ProbeContext, kept: Tensor, wanted: set[int]) -> list[int]:
    """Return the leaves (by `id`) that a stored tensor was computed from before the forward.

    Stored results of the model's own parameters are excluded: those do learn.
    """
    node = kept.grad_fn
    number = None if node is None else created(node)
    if node is None or number is None or number >= context.capture.first_number:
        return []
    if node not in context.capture.graph.index:
        return []
    behind = {id(leaf) for leaf in leaves_behind(Edge(node, kept.output_nr, None))}
    return list(behind) if behind <= wanted else []


def _stored_tensors(context: ProbeContext) -> Iterator[tuple[Tensor, _Location]]:
    """Yield the tensors that the model's modules store besides their parameters."""
    yield from _late_parameters(context)
    seen = {id(module) for module in context.named.modules}
    for index, module in enumerate(context.named.modules):
        path = context.named.module_records[index].path
        prefix = f"{path}." if path else ""
        for name, buffer in module._buffers.items():
            if buffer is not None:
                position = _Location(f"{prefix}{name}", index, name, "buffer", False, "attribute")
                yield buffer, position
        for name, value in vars(module).items():
            if name in _MODULES_OWN:
                continue
            kind = type(value).__name__
            aside = module.training and _is_in_eval_mode(value)
            position = _Location("", index, name, kind, aside, "attribute")
            for tensor, inner in _named_tensors(value, f"{prefix}{name}", seen):
                yield tensor, position._replace(name=inner)


def _late_parameters(context: ProbeContext) -> Iterator[tuple[Tensor, _Location]]:
    """Yield the parameters that the model did not have before the forward."""
    known = {id(parameter) for parameter in context.named.parameters}
    for name, parameter in members.named_parameters(context.target.model):
        if id(parameter) not in known:
            owner, attribute = _giver(context, name)
            yield parameter, _Location(name, owner, attribute, "Parameter", False, "late")


def _giver(context: ProbeContext, name: str) -> tuple[int, str]:
    """Return the owner, present before the forward, that got the object of a name."""
    positions = {id(module): position for position, module in enumerate(context.named.modules)}
    module: nn.Module = context.target.model
    for part in name.split("."):
        inner = module._modules.get(part)
        if inner is None or id(inner) not in positions:
            return positions.get(id(module), 0), part
        module = inner
    return positions.get(id(module), 0), name


def _is_in_eval_mode(value: object) -> bool:
    items = value.values() if isinstance(value, Mapping) else value
    items = [item for _, item in _held_by_function(value)] or items
    items = items if isinstance(items, tuple | list) else [items]
    modules = [item for item in items if isinstance(item, nn.Module)]
    return bool(modules) and not any(module.training for module in modules)


def _named_tensors(value: object, name: str, seen: set[int]) -> Iterator[tuple[Tensor, str]]:
    """Yield the tensors in a value, with their names; visited values are not entered again."""
    waiting = [(value, name)]
    for _ in range(MOST_VALUES):
        if not waiting:
            return
        # Breadth first, so that a tensor gets its shortest name.
        value, name = waiting.pop(0)
        if isinstance(value, Tensor):
            yield value, name
        elif id(value) not in seen:
            seen.add(id(value))
            waiting += [(item, f"{name}.{key}") for key, item in _items(value)]


def _items(value: object) -> list[tuple[object, object]]:
    if isinstance(value, nn.Module):
        own = [*value._parameters.items(), *value._buffers.items(), *value._modules.items()]
        return [(key, item) for key, item in own if item is not None]
    if isinstance(value, Mapping):
        return list(value.items())
    if isinstance(value, tuple | list | set | frozenset):
        return list(enumerate(value))
    if held := _held_by_function(value):
        return held
    if isinstance(value, _NOT_ENTERED) or type(value).__module__.startswith("torch"):
        return []
    return list(getattr(value, "__dict__", {}).items())


def _held_by_function(value: object) -> list[tuple[object, object]]:
    """Return what a function keeps alive: its closure, its arguments' defaults, its object."""
    if isinstance(value, partial):
        return [("func", value.func), *enumerate(value.args), *value.keywords.items()]
    if isinstance(value, MethodType):
        return [("__self__", value.__self__)] if isinstance(value.__self__, nn.Module) else []
    if not isinstance(value, FunctionType):
        return []
    code, defaults = value.__code__, value.__defaults__ or ()
    cells = zip(code.co_freevars, value.__closure__ or (), strict=True)
    names = code.co_varnames[code.co_argcount - len(defaults) : code.co_argcount]
    return [
        # A cell is empty until its variable gets a value, which may be never.
        *((name, cell.cell_contents) for name, cell in cells if cell != CellType()),
        *zip(names, defaults, strict=True),
        *(value.__kwdefaults__ or {}).items(),
    ]
