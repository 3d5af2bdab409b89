"""Losses of torch that take a mean: their targets, and their sums."""

import libcst as cst

from gradscope.frozen import dataclass
from gradscope.source_edits.source_file import Changes, SourceFile, operand
from gradscope.source_edits.variables import reads, value_of

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
    target: cst.BaseExpression
    ignored: cst.BaseExpression | None
    """Class that is not counted, as the code gives it."""
    count: str
    """Code for the number of targets in the mean."""


def mean_loss(source: SourceFile, call: cst.Call) -> MeanLoss | None:
    """Return what a call of a loss of torch is; None if it takes no plain mean, or is unclear."""
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
    if target is None or not _is_mean(source, options) or any(one.star for one in configured.args):
        return None
    is_weighted = "weight" in options and name in _OF_CLASSES
    if is_weighted or len(configured.args) - len(options) != (2 if configured is call else 0):
        return None
    ignored = options["ignore_index"].value if "ignore_index" in options else None
    plain = operand(_unflattened(source, target))
    if name in _OF_CLASSES:
        left_out = _IGNORED if ignored is None else source.code(ignored)
        count = f"({source.code(plain)} != {left_out}).sum()"
    else:
        count = f"{source.code(plain)}.numel()"
    return MeanLoss(
        summed={configured: _with_sum(configured, options)},
        target=target,
        ignored=ignored,
        count=count,
    )


def _criterion(source: SourceFile, name: cst.BaseExpression) -> cst.Call | None:
    """Return the call that makes a loss module which the file uses once."""
    value = value_of(source, name)
    if not isinstance(value, cst.Call) or not isinstance(name, cst.Name):
        return None
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


def _is_mean(source: SourceFile, options: dict[str, cst.Arg]) -> bool:
    given = options.get("reduction")
    is_mean = given is None or source.code(given.value).strip("\"'") == "mean"
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
