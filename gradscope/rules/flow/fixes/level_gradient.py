"""Candidates that may keep the gradient level: initialisation, activation, normalisation."""

from collections.abc import Iterable, Iterator

import libcst as cst

from gradscope.recording.finding import Edit, Finding
from gradscope.rules.context import RuleContext
from gradscope.source_edits.imported_names import spelled
from gradscope.source_edits.source_file import Changes, SourceFile, only
from gradscope.source_edits.source_files import SourceFiles

_INITIALISATIONS = ("kaiming_normal_", "xavier_normal_", "orthogonal_")
_FUNCTIONS = ("sigmoid", "tanh")
_LAYERS = ("Sigmoid", "Tanh")
_ACTIVATIONS = (
    ("relu", "ReLU", "kaiming_normal_"),
    ("gelu", "GELU", "kaiming_normal_"),
    ("tanh", "Tanh", "xavier_normal_"),
)
"""Function, layer and the initialisation that suits them."""


def fix(finding: Finding, context: RuleContext, files: SourceFiles) -> Iterator[tuple[Edit, ...]]:
    """Yield the edits of the initialisation, the activation or a normalisation."""
    del context
    source = files.at(finding.location)
    if source is None or finding.location is None:
        return
    lines = [finding.location.line]
    lines += [one.line for one in finding.related if one.file == source.path]
    changes = [
        *_initialised(source, lines),
        *_activated(source, finding.location.line),
        *_normalised(source, lines),
    ]
    yield from map(source.edits, changes)


def _initialised(source: SourceFile, lines: list[int]) -> Iterator[Changes]:
    """Yield the changes of the only initialisation on the lines, or of all those of their class."""
    found = [call for line in lines for call in source.on_line(line, cst.Call)]
    calls = _initialisations(source, {id(one): one for one in found}.values())
    if not calls:
        kind = source.around(source.statements(lines[0])[0], cst.ClassDef)
        calls = [] if kind is None else _initialisations(source, source.inside(kind, cst.Call))
    elif len(calls) > 1:
        return
    if not calls or len({source.code(one.func) for one in calls}) > 1:
        return
    for name in _INITIALISATIONS:
        yield {one: _with_initialiser(one, name) for one in calls}


def _initialisations(source: SourceFile, calls: Iterable[cst.Call]) -> list[cst.Call]:
    """Return the calls of `torch.nn.init` that draw weights."""
    return [
        one
        for one in calls
        if isinstance(one.func, cst.Attribute) and one.args
        if source.qualified(one.func).startswith("torch.nn.init.")
        if one.func.attr.value not in ("constant_", "ones_", "zeros_")
    ]


def _with_initialiser(call: cst.Call, name: str) -> cst.Call:
    weight = call.args[0].with_changes(
        comma=cst.MaybeSentinel.DEFAULT, whitespace_after_arg=call.args[-1].whitespace_after_arg
    )
    function = cst.ensure_type(call.func, cst.Attribute).with_changes(attr=cst.Name(name))
    return call.with_changes(func=function, args=[weight])


def _activated(source: SourceFile, line: int) -> Iterator[Changes]:
    """Yield the changes of the activation on a line, alone and with an initialisation."""
    old = list(_activations(source, line))
    kinds = {source.code(one).rpartition(".")[2].lower() for one in old}
    if len(kinds) != 1:
        return
    initialised = _with_initialisation(source, line)
    for function, layer, initialisation in _ACTIVATIONS:
        if function in kinds:
            continue
        changes: dict[cst.CSTNode, cst.CSTNode] = {}
        for one in old:
            new = _renamed(source, one, function, layer)
            if new is not None:
                changes[one] = new
        if len(changes) == len(old):
            yield changes
            if initialised is not None:
                yield {**changes, **initialised(initialisation)}


def _activations(source: SourceFile, line: int) -> Iterator[cst.BaseExpression]:
    """Yield the functions of sigmoids or tanhs on a line, or of the layers of its list."""
    for call in source.on_line(line, cst.Call):
        name = source.qualified(call.func)
        of_torch = [f"torch.{one}" for one in _FUNCTIONS]
        of_torch += [f"torch.nn.functional.{one}" for one in _FUNCTIONS]
        of_torch += [f"torch.nn.{one}" for one in _LAYERS]
        is_method = not name and not call.args and _is_method(call.func)
        if name in of_torch or is_method:
            yield call.func


def _is_method(function: cst.BaseExpression) -> bool:
    return isinstance(function, cst.Attribute) and function.attr.value in _FUNCTIONS


def _renamed(
    source: SourceFile, old: cst.BaseExpression, function: str, layer: str
) -> cst.BaseExpression | None:
    name = source.qualified(old)
    if not name:  # a method of a tensor
        is_method = isinstance(old, cst.Attribute) and function in ("relu", "tanh")
        return old.with_changes(attr=cst.Name(function)) if is_method else None
    is_layer = name.rpartition(".")[2] in _LAYERS
    full = f"torch.nn.{layer}" if is_layer else f"torch.{function}"
    if function == "gelu" and not is_layer:
        full = "torch.nn.functional.gelu"
    spelling = spelled(source, full)
    return None if spelling is None else cst.parse_expression(spelling)


class _Initialisation:
    """Inserts a loop that initialises the layers of `self.layers` behind their assignment."""

    def __init__(self, line: cst.SimpleStatementLine, layers: str, module: str) -> None:
        self._line, self._layers, self._module = line, layers, module

    def __call__(self, name: str) -> Changes:
        code = f"for layer in {self._layers}:\n    {self._module}.{name}(layer.weight)\n"
        loop = cst.parse_statement(code)
        both: list[cst.BaseStatement] = [self._line, loop]
        return {self._line: cst.FlattenSentinel(both)}


def _with_initialisation(source: SourceFile, line: int) -> _Initialisation | None:
    """Return how to initialise the layers over which the loop around a line goes."""
    statement = only(source.statements(line))
    loop = None if statement is None else source.around(statement, cst.For)
    kind = None if loop is None else source.around(loop, cst.ClassDef)
    module = spelled(source, "torch.nn.init")
    if loop is None or kind is None or module is None or not isinstance(loop.iter, cst.Attribute):
        return None
    layers = source.code(loop.iter)
    assigned = only(
        one
        for one in source.inside(kind, cst.Assign)
        if [source.code(target.target) for target in one.targets] == [layers]
    )
    outer = None if assigned is None else source.parent(assigned)
    is_alone = isinstance(outer, cst.SimpleStatementLine) and len(outer.body) == 1
    if not is_alone or not isinstance(outer, cst.SimpleStatementLine):
        return None
    is_initialised = "init." in source.code(kind)
    return None if is_initialised else _Initialisation(outer, layers, module)


def _normalised(source: SourceFile, lines: list[int]) -> Iterator[Changes]:
    """Yield the change that inserts a LayerNorm between each linear layer and its activation."""
    spelling = spelled(source, "torch.nn.LayerNorm")
    calls = {id(one): one for line in lines for one in source.on_line(line, cst.Call)}
    outer = only(
        one
        for one in calls.values()
        if source.qualified(one.func) == "torch.nn.Sequential" and len(one.args) > 2
    )
    if outer is None or spelling is None:
        return
    arguments: list[cst.Arg] = []
    for argument, following in zip(outer.args, [*outer.args[1:], None], strict=True):
        arguments.append(argument)
        width = _width(source, argument)
        if width is not None and following is not None and _is_activation(source, following):
            norm = cst.Call(func=cst.parse_expression(spelling), args=[cst.Arg(width.deep_clone())])
            arguments.append(argument.with_changes(value=norm))
    if len(arguments) > len(outer.args):
        yield {outer: outer.with_changes(args=arguments)}


def _width(source: SourceFile, argument: cst.Arg) -> cst.BaseExpression | None:
    call = argument.value
    if not isinstance(call, cst.Call) or source.qualified(call.func) != "torch.nn.Linear":
        return None
    plain = [one.value for one in call.args if one.keyword is None and not one.star]
    return plain[1] if len(plain) > 1 else None


def _is_activation(source: SourceFile, argument: cst.Arg) -> bool:
    is_layer = isinstance(argument.value, cst.Call) and not argument.value.args
    name = source.qualified(argument.value.func) if isinstance(argument.value, cst.Call) else ""
    return is_layer and name.startswith("torch.nn.")
