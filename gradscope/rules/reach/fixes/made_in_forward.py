"""Makes a layer once, in `__init__`, that the forward makes anew each time."""

import re
from collections.abc import Iterator, Sequence
from itertools import product

import libcst as cst

from gradscope.source_edits.calls import literal_arguments
from gradscope.source_edits.passes import loop_around
from gradscope.source_edits.source_file import Changes, SourceFile, only
from gradscope.source_edits.variables import is_local, value_of

_LAYERS = re.compile(
    r"(Adaptive)?(Linear|Bilinear|(Conv|ConvTranspose|BatchNorm|InstanceNorm)\dd|LayerNorm|GroupNorm"
    r"|RMSNorm|Embedding(Bag)?|(LSTM|GRU|RNN)(Cell)?|MultiheadAttention|Transformer\w+|Sequential"
    r"|Parameter|PReLU)$"
)
"""Classes of torch that have parameters."""
_SIZES = {"Linear": (1, 0), "Conv": (1, 0), "ConvTranspose": (0, 1), "Embedding": (0, 1)}
"""Dimensions of the weight that the first two arguments of a layer give."""
_REPEATING = (cst.DictComp, cst.GeneratorExp, cst.IfExp, cst.Lambda, cst.ListComp, cst.SetComp)
_OF_ONE = ("BatchNorm", "InstanceNorm", "LayerNorm", "RMSNorm")
"""Layers whose first argument is the only dimension of their weight."""


def made_once(source: SourceFile, line: int, shapes: Sequence[tuple[int, ...]]) -> Changes:
    """Return the change that makes the only layer of a line in `__init__`; empty if it is unclear.

    Args:
        source: The file.
        line: The line of the forward that makes the layer, or that first uses it.
        shapes: Shapes of the layer's parameters, of all modules of the class.
    """
    layer = _layer_on(source, line)
    function = None if layer is None else source.around(layer, cst.FunctionDef)
    kind = None if function is None else source.around(function, cst.ClassDef)
    if layer is None or function is None or kind is None or source.scope(layer) is None:
        return {}
    start = only(one for one in _methods(kind) if one.name.value == "__init__")
    last = None if start is None else _last_assignment(source, start)
    owner = only(one.name.value for one in function.params.params[:1])
    made = None if start is None else _as_made_in(source, start, layer, kind, shapes)
    conditions = _conditions(source, layer, function)
    if start is None or last is None or owner != "self" or made is None or conditions is None:
        return {}
    if function not in _methods(kind) or function is start or _repeats(source, layer):
        return {}
    name = _name(source, kind, layer)
    stored = cst.parse_statement(f"self.{name} = {source.code(made)}")
    attribute = cst.Attribute(value=cst.Name("self"), attr=cst.Name(name))
    if not conditions:
        assert isinstance(stored, cst.SimpleStatementLine)
        return {**source.inserted_after(last, stored.body[0]), layer: attribute}
    outer = source.parent(last)
    if not isinstance(outer, cst.SimpleStatementLine) or not _is_static(source, start, conditions):
        return {}
    block = cst.If(test=conditions[0].deep_clone(), body=cst.IndentedBlock(body=[stored]))
    both: list[cst.BaseStatement] = [outer, block]
    return {outer: cst.FlattenSentinel(both), layer: attribute}


def _layer_on(source: SourceFile, line: int) -> cst.Call | None:
    """Return the call that makes the only layer which a line makes, or else uses."""
    calls = source.on_line(line, cst.Call)
    made = [one for one in calls if _class_of(source, one)]
    inner = {
        id(one) for outer in made for one in source.inside(outer, cst.Call) if one is not outer
    }
    if made:
        # Of `nn.Sequential(nn.Linear(…))`, the outer call is the layer that the forward uses.
        return only(one for one in made if id(one) not in inner)
    names = {one.value: one for one in source.on_line(line, cst.Name)}
    values = (value_of(source, one) for one in names.values())
    return only(one for one in values if isinstance(one, cst.Call) and _class_of(source, one))


def _class_of(source: SourceFile, call: cst.Call) -> str:
    """Return the name of the class of a layer that has parameters; else an empty one."""
    if not isinstance(call.func, cst.Attribute | cst.Name):
        return ""
    package, _, name = source.qualified(call.func).rpartition(".")
    is_layer = package.startswith("torch.nn") and _LAYERS.match(name) is not None
    return name if is_layer else ""


def _methods(kind: cst.ClassDef) -> list[cst.FunctionDef]:
    return [one for one in kind.body.body if isinstance(one, cst.FunctionDef)]


def _last_assignment(source: SourceFile, start: cst.FunctionDef) -> cst.BaseSmallStatement | None:
    """Return the last statement of `__init__`, outside of blocks, that assigns an attribute."""
    lines = [one for one in start.body.body if isinstance(one, cst.SimpleStatementLine)]
    small = [part for line in lines for part in line.body]
    if isinstance(start.body, cst.SimpleStatementSuite):
        small = list(start.body.body)
    stored = [
        one
        for one in small
        if isinstance(one, cst.Assign | cst.AnnAssign)
        and any(map(_is_own, source.inside(one, cst.Attribute)))
    ]
    return stored[-1] if stored else None


def _is_own(node: cst.Attribute) -> bool:
    return isinstance(node.value, cst.Name) and node.value.value == "self"


def _repeats(source: SourceFile, layer: cst.Call) -> bool:
    """Return whether the forward makes several layers at the call."""
    inner = source.around(layer, *_REPEATING, cst.FunctionDef)
    return loop_around(source, layer) is not None or not isinstance(inner, cst.FunctionDef)


def _conditions(
    source: SourceFile, layer: cst.Call, function: cst.FunctionDef
) -> list[cst.BaseExpression] | None:
    """Return the only condition under which the forward makes a layer; None for other blocks."""
    found: list[cst.BaseExpression] = []
    inner: cst.CSTNode = layer
    while inner is not function.body:
        outer = source.parent(inner)
        if isinstance(outer, cst.BaseCompoundStatement):
            # An `elif` depends on the conditions before it, too.
            is_branch = isinstance(source.parent(outer), cst.If)
            if not isinstance(outer, cst.If) or outer.body is not inner or is_branch or found:
                return None
            found.append(outer.test)
        inner = outer
    return found


def _is_static(
    source: SourceFile, start: cst.FunctionDef, expressions: Sequence[cst.BaseExpression]
) -> bool:
    """Return whether `__init__` can evaluate expressions of the forward."""
    return all(not _local_names(source, start, one) for one in expressions)


def _local_names(
    source: SourceFile, start: cst.FunctionDef, expression: cst.BaseExpression
) -> list[cst.CSTNode]:
    """Return the variables of the forward in an expression, and attributes set elsewhere."""
    stored = {
        one.attr.value
        for target in source.inside(start, cst.AssignTarget)
        for one in source.inside(target.target, cst.Attribute)
        if _is_own(one)
    }
    missing: list[cst.CSTNode] = [
        one
        for one in source.inside(expression, cst.Attribute)
        if _is_own(one) and one.attr.value not in stored
    ]
    for name in source.inside(expression, cst.Name):
        parent = source.parent(name)
        is_part = isinstance(parent, cst.Attribute) and parent.attr is name
        is_keyword = isinstance(parent, cst.Arg) and parent.keyword is name
        if not (is_part or is_keyword or name.value == "self") and is_local(source, name):
            missing.append(name)
    return missing


def _as_made_in(
    source: SourceFile,
    start: cst.FunctionDef,
    layer: cst.Call,
    kind: cst.ClassDef,
    shapes: Sequence[tuple[int, ...]],
) -> cst.Call | None:
    """Return the call with sizes that `__init__` knows; None if it does not know one."""
    unknown = [one for one in layer.args if _local_names(source, start, one.value)]
    if not unknown:
        return layer
    sizes = _dimensions(source, layer)
    positions = [at for at, one in enumerate(layer.args) if one in unknown]
    if any(at >= len(sizes) or layer.args[at].keyword is not None for at in positions):
        return None
    # Biases have fewer dimensions than the sizes ask for.
    weights = {one for one in shapes if len(one) > max(sizes)} if len(sizes) > 1 else {*shapes}
    found = {tuple(one[sizes[at]] for at in positions) for one in weights}
    codes = _codes(source, start, kind, [source.code(one.value) for one in unknown], found)
    if codes is None:
        return None
    values = dict(zip(positions, codes, strict=True))
    return layer.with_changes(
        args=[
            one.with_changes(value=cst.parse_expression(values[at])) if at in values else one
            for at, one in enumerate(layer.args)
        ]
    )


def _dimensions(source: SourceFile, layer: cst.Call) -> tuple[int, ...]:
    """Return the dimension of the weight that each of the first arguments gives."""
    name = re.sub(r"\dd$", "", _class_of(source, layer))
    # With groups, a weight has a part of the input's channels.
    is_grouped = any(one.keyword and one.keyword.value == "groups" for one in layer.args)
    if is_grouped or any(one.star for one in layer.args):
        return ()
    return (0,) if name in _OF_ONE else _SIZES.get(name, ())


def _codes(
    source: SourceFile,
    start: cst.FunctionDef,
    kind: cst.ClassDef,
    written: list[str],
    found: set[tuple[int, ...]],
) -> list[str] | None:
    """Return code for sizes: the parameters of `__init__` that have their values, or numbers.

    None if modules of the class differ, and not as their parameters do.
    """
    calls = literal_arguments(source, kind, start)
    different = list(dict.fromkeys(written))
    at = [written.index(one) for one in different]
    wanted = {tuple(one[position] for position in at) for one in found}
    names = list(calls[0]) if calls else []
    fitting = [
        chosen
        for chosen in product(names, repeat=len(different))
        if {tuple(call.get(name) for name in chosen) for call in calls} == wanted
    ]
    if len(fitting) == 1:
        named = dict(zip(different, fitting[0], strict=True))
        return [named[one] for one in written]
    return [str(number) for number in next(iter(found))] if len(found) == 1 else None


def _name(source: SourceFile, kind: cst.ClassDef, layer: cst.Call) -> str:
    """Return an attribute that the class does not have yet, after the variable or the class."""
    outer = source.parent(layer)
    target = outer.targets[0].target if isinstance(outer, cst.Assign) else None
    if isinstance(target, cst.Name):
        base = target.value
    else:
        short = re.sub(r"\dd$", "", _class_of(source, layer))
        words = re.sub(r"(?<=[a-z])(?=[A-Z])", "_", short).lower()
        base = "weight" if words == "parameter" else words
    taken = {one.attr.value for one in source.inside(kind, cst.Attribute) if _is_own(one)}
    taken |= {one.name.value for one in _methods(kind)}
    return next(one for one in _numbered(base) if one not in taken)


def _numbered(base: str) -> Iterator[str]:
    yield base
    number = 2
    while True:
        yield f"{base}{number}"
        number += 1
