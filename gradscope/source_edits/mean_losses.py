"""Losses of torch that take a mean: their targets, and their sums."""

import libcst as cst

from gradscope.frozen import dataclass
from gradscope.source_edits.source_file import Changes, SourceFile, operand
from gradscope.source_edits.variables import is_local, names_in, reads, value_of

_OF_CLASSES = {"cross_entropy": "CrossEntropyLoss", "nll_loss": "NLLLoss"}
_OF_ELEMENTS = {
    "binary_cross_entropy": "BCELoss",
    "binary_cross_entropy_with_logits": "BCEWithLogitsLoss",
    "huber_loss": "HuberLoss",
    "l1_loss": "L1Loss",
    "mse_loss": "MSELoss",
    "smooth_l1_loss": "SmoothL1Loss",
}
_FUNCTIONAL, _MODULES = "torch.nn.functional.", "torch.nn."
_FLAT = ("flatten()", "reshape(-1)", "view(-1)")
_IGNORED = "-100"
"""Default of `ignore_index`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MeanLoss:
    """A call that computes a mean over targets."""

    summed: Changes
    """The change that makes it a sum."""
    count: str
    """Code for the number of targets in the mean."""
    counted: tuple[cst.BaseExpression, ...]
    """Expressions around the call whose names this code has."""


def mean_loss(source: SourceFile, call: cst.Call) -> MeanLoss | None:
    """Return what a call of a loss of torch is, or of a function that only calls one.

    None if it takes no plain mean, or is unclear.
    """
    direct = _of_torch(source, call)
    return _of_helper(source, call) if direct is None else direct


def _of_torch(source: SourceFile, call: cst.Call, chosen: str | None = None) -> MeanLoss | None:
    """Return what a call of a loss of torch is, whose reduction a parameter may choose."""
    configured = call
    name = source.qualified(call.func).removeprefix(_FUNCTIONAL)
    if name not in (*_OF_CLASSES, *_OF_ELEMENTS):
        made = _criterion(source, call.func)
        names = {one: function for function, one in (_OF_CLASSES | _OF_ELEMENTS).items()}
        name = "" if made is None else names.get(_class_name(source, made), "")
        if made is None or not name:
            return None
        configured = made
    options = {one.keyword.value: one for one in configured.args if one.keyword is not None}
    target = _target(call)
    if (
        target is None
        or not _is_mean(source, options, chosen)
        or any(one.star for one in configured.args)
    ):
        return None
    # A weighted mean divides by the sum of weights, not by the number of targets.
    is_weighted = "weight" in options and name in _OF_CLASSES
    # Another positional argument may be a weight or a reduction.
    if is_weighted or len(configured.args) - len(options) != (2 if configured is call else 0):
        return None
    ignored = options["ignore_index"].value if "ignore_index" in options else None
    plain = operand(_unflattened(source, target))
    if name in _OF_CLASSES:
        # torch leaves targets with this value out of the mean.
        left_out = _IGNORED if ignored is None else source.code(ignored)
        count = f"({source.code(plain)} != {left_out}).sum()"
    else:
        count = f"{source.code(plain)}.numel()"
    return MeanLoss(
        summed={configured: _with_sum(configured, options)},
        count=count,
        counted=(target,) if ignored is None else (target, ignored),
    )


def _of_helper(source: SourceFile, call: cst.Call) -> MeanLoss | None:
    """Return what a call of a function is that returns a loss with the reduction it is given."""
    helper = _helper(source, call)
    bound = {} if helper is None else _bound(helper.function, call)
    if helper is None or not bound:
        return None
    given = bound.get(helper.reduction)
    inner = _of_torch(source, helper.loss, helper.reduction)
    if inner is None or given is None or not _says(source, given, "mean"):
        return None
    names = set[str]().union(*(names_in(source, one) for one in inner.counted))
    own = {one.name.value for one in helper.function.params.params}
    others = (one for node in inner.counted for one in source.inside(node, cst.Name, own=True))
    is_known = all(one.value in own or not is_local(source, one) for one in others)
    if not is_known or not names & own <= bound.keys():
        return None
    changed = {name: bound[name] for name in names & own}
    count = cst.parse_expression(inner.count).visit(_Replacing(changed))
    assert isinstance(count, cst.BaseExpression)
    summed = cst.SimpleString('"sum"')
    if any(given is one.value for one in call.args):
        replaced = call.deep_replace(given, summed)
    else:
        name = cst.Arg(summed, keyword=cst.Name(helper.reduction), equal=_TIGHT)
        replaced = call.with_changes(args=[*call.args, name])
    assert isinstance(replaced, cst.Call)
    return MeanLoss(
        summed={call: replaced},
        count=source.module.code_for_node(count),
        counted=tuple(changed.values()),
    )


# By default, libcst writes spaces around the `=` of an argument.
_TIGHT = cst.AssignEqual(cst.SimpleWhitespace(""), cst.SimpleWhitespace(""))


@dataclass(frozen=True, slots=True)
class _Helper:
    """A function that only returns a loss of torch, whose reduction is a parameter."""

    function: cst.FunctionDef
    loss: cst.Call
    reduction: str


def _helper(source: SourceFile, call: cst.Call) -> _Helper | None:
    if not isinstance(call.func, cst.Name):
        return None
    named = [one for one in source.all(cst.FunctionDef) if one.name.value == call.func.value]
    function = named[0] if len(named) == 1 else None
    # A decorator may change what a call returns.
    if function is None or function.decorators or source.parent(function) is not source.module:
        return None
    *before, last = function.body.body
    is_plain = all(map(_is_docstring, before))
    returned = last.body[0] if isinstance(last, cst.SimpleStatementLine) else last
    value = returned.value if isinstance(returned, cst.Return) else None
    if not is_plain or not isinstance(value, cst.Call):
        return None
    given = [one.value for one in value.args if one.keyword and one.keyword.value == "reduction"]
    name = given[0] if given else None
    return _Helper(function, value, name.value) if isinstance(name, cst.Name) else None


def _is_docstring(statement: cst.CSTNode) -> bool:
    line = statement.body[0] if isinstance(statement, cst.SimpleStatementLine) else None
    return isinstance(line, cst.Expr) and isinstance(line.value, cst.SimpleString)


def _bound(function: cst.FunctionDef, call: cst.Call) -> dict[str, cst.BaseExpression]:
    """Return what a call gives for each parameter of a function; nothing if it is unclear."""
    parameters = function.params
    if any(one.star for one in call.args) or parameters.star_kwarg or parameters.kwonly_params:
        return {}
    names = [one.name.value for one in parameters.params]
    bound = {one.name.value: one.default for one in parameters.params if one.default is not None}
    positional = [one.value for one in call.args if one.keyword is None]
    bound |= dict(zip(names, positional, strict=False))
    return bound | {one.keyword.value: one.value for one in call.args if one.keyword is not None}


class _Replacing(cst.CSTTransformer):
    """Puts other expressions in place of variables."""

    def __init__(self, changed: dict[str, cst.BaseExpression]) -> None:
        super().__init__()
        self._changed = changed

    def on_leave(  # type: ignore[override]
        self, original_node: cst.CSTNode, updated_node: cst.CSTNode
    ) -> cst.CSTNode:
        """Replace a variable; leave the names of attributes and arguments alone."""
        if isinstance(original_node, cst.Name):
            return operand(self._changed.get(original_node.value, original_node))
        if isinstance(original_node, cst.Attribute):
            return updated_node.with_changes(attr=original_node.attr)
        if isinstance(original_node, cst.Arg):
            return updated_node.with_changes(keyword=original_node.keyword)
        return updated_node


def _criterion(source: SourceFile, name: cst.BaseExpression) -> cst.Call | None:
    """Return the call that makes a loss module which the file uses once."""
    value = value_of(source, name)
    if not isinstance(value, cst.Call) or not isinstance(name, cst.Name):
        return None
    # Another use of the module would get sums, too.
    is_used_once = len(list(reads(source, source.module, name.value))) == 2  # and assigned
    return value if is_used_once else None


def _class_name(source: SourceFile, made: cst.Call) -> str:
    full = source.qualified(made.func)
    return full.rpartition(".")[2] if full.startswith(_MODULES) else ""


def _target(call: cst.Call) -> cst.BaseExpression | None:
    for number, one in enumerate(call.args):
        is_named = one.keyword is not None and one.keyword.value == "target"
        if is_named or (number == 1 and one.keyword is None and not one.star):
            return one.value
    return None


def _says(source: SourceFile, expression: cst.BaseExpression, word: str) -> bool:
    return source.code(expression).strip("\"'") == word


def _is_mean(source: SourceFile, options: dict[str, cst.Arg], chosen: str | None) -> bool:
    given = options.get("reduction")
    words = ("mean",) if chosen is None else (chosen,)
    is_mean = given is None or any(_says(source, given.value, word) for word in words)
    # These older arguments override `reduction`.
    return is_mean and not {"reduce", "size_average"} & set(options)


def _unflattened(source: SourceFile, target: cst.BaseExpression) -> cst.BaseExpression:
    """Return `x` of `x.view(-1)`."""
    if not isinstance(target, cst.Call) or not isinstance(target.func, cst.Attribute):
        return target
    is_flat = source.code(target).endswith(tuple(f".{one}" for one in _FLAT))
    return target.func.value if is_flat else target


def _with_sum(call: cst.Call, options: dict[str, cst.Arg]) -> cst.Call:
    example = cst.ensure_type(cst.parse_expression('f(reduction="sum")'), cst.Call)
    added = example.args[0]
    given = options.get("reduction")
    if given is None:
        return call.with_changes(args=[*call.args, added])
    args = [one.with_changes(value=added.value) if one is given else one for one in call.args]
    return call.with_changes(args=args)
