"""Finds lines of a script's source that can set ranks apart."""

import ast
import re
from collections.abc import Collection, Iterator

from gradscope.capture.observed_calls import writes_in_place
from gradscope.capture.source.lines import Line
from gradscope.capture.source.statements import code_at, nodes_within, tree_of

_SEEDS = frozenset({"manual_seed", "seed", "seed_everything", "set_seed", "default_rng"})

_LOADS = frozenset({"load_state_dict", "load_checkpoint", "load_weights", "update_parameters"})

_WRAPPERS = frozenset({"fully_shard", "parallelize_module", "FSDP", "FullyShardedDataParallel"})

_RANKS = re.compile(
    r"rank|is_(local_|global_)?(main|master|zero)(_process|_rank)?$|is_global_zero|^(main|master)(_process)?$",
    re.IGNORECASE,
)
"""Names of a rank's number, and of what is true on one rank alone."""

_SCHEDULES = re.compile(r"(LR|LRScheduler|ReduceLROnPlateau|WarmRestarts|_schedule_with_warmup)$")

_MOST_LINES = 64
"""Maximum number of lines of one kind in a file."""


def written_lines(file: str) -> Iterator[tuple[str, Line]]:
    """Yield lines of a file by kind.

    Kinds are `seed`, `rate` (a learning rate is assigned), `gradient` (a gradient is written),
    `weight` (a weight is written), `no-sync`, `leave` (a loop is left, or an iteration skipped, on
    a condition), `reduce` (a loop with an all_reduce, and its conditions), `wrap`, `unfreeze`,
    `schedule` (a schedule of the learning rate is made), `one-rank` (weights or the state of an
    optimizer change in a branch of some ranks), `divisor` (FSDP2 is told what to divide gradients
    by) and `local` (a distributed tensor other than a gradient gives its local part, without
    placements of the gradient).
    """
    counts: dict[str, int] = {}
    seen = set[tuple[str, int]]()
    for kind, number in _found(tree_of(file)):
        if (kind, number) in seen or counts.get(kind, 0) >= _MOST_LINES:
            continue
        seen.add((kind, number))
        counts[kind] = counts.get(kind, 0) + 1
        code = code_at(file, number)
        if code is not None:
            yield kind, Line(code, number)


def _found(tree: ast.Module) -> Iterator[tuple[str, int]]:
    reducing = frozenset(_reducing(tree))
    for scope in _scopes(tree):
        tainted = _gradients(scope)
        for node in nodes_within(scope):
            yield from _of_node(node, tainted)
            if isinstance(node, ast.For):
                yield from _of_loop(node, reducing)


def _reducing(tree: ast.Module) -> Iterator[str]:
    """Yield the names of functions of a file that reduce, themselves or through another one."""
    found: set[str] = set()
    # Twice, because a function may stand before the one through which it reduces.
    for _ in range(2):
        for scope in _scopes(tree):
            if isinstance(scope, ast.FunctionDef) and _reduces(scope, found):
                found.add(scope.name)
    yield from found


def _of_loop(node: ast.For, reducing: Collection[str]) -> Iterator[tuple[str, int]]:
    """Yield a loop that reduces, and the conditions in it."""
    called = {_called(one) for one in ast.walk(node) if isinstance(one, ast.Call)}
    is_training = "backward" in called
    # A training loop that calls a reducer says nothing about what the reducer leaves out.
    if any(_reduces(one, () if is_training else reducing) for one in node.body):
        yield "reduce", node.lineno
        conditions = (one for part in node.body for one in ast.walk(part))
        yield from (("reduce", one.lineno) for one in conditions if isinstance(one, ast.If))


def _of_node(node: ast.AST, tainted: set[str]) -> Iterator[tuple[str, int]]:
    match node:
        case ast.Call():
            yield from _of_call(node)
            yield from _of_write(node, tainted)
        case ast.Assign(targets=[target]) | ast.AugAssign(target=target):
            yield from _of_assignment(node, target)
            yield from _of_gradient(node, target, tainted)
        case ast.If():
            yield from _of_branch(node)
            yield from _of_one_rank(node)
        case ast.With(items=items):
            if any("no_sync" in ast.unparse(item.context_expr) for item in items):
                yield "no-sync", node.lineno


def _reduces(node: ast.AST, reducing: Collection[str]) -> bool:
    calls = (_called(one) for one in ast.walk(node) if isinstance(one, ast.Call))
    return any(one.startswith("all_reduce") or one in reducing for one in calls)


def _of_branch(node: ast.If) -> Iterator[tuple[str, int]]:
    for one in (*node.body, *node.orelse):
        if isinstance(one, ast.Continue | ast.Break | ast.Return):
            yield "leave", one.lineno
            yield "leave", node.lineno


def _of_one_rank(node: ast.If) -> Iterator[tuple[str, int]]:
    """Yield calls that change a module or an optimizer, if the rank's number decides on them."""
    tested = (one for one in ast.walk(node.test) if isinstance(one, ast.Name | ast.Attribute))
    if not any(
        _RANKS.search(one.attr if isinstance(one, ast.Attribute) else one.id) for one in tested
    ):
        return
    for part in node.body:
        for one in ast.walk(part):
            if isinstance(one, ast.Call) and _changes(_called(one)):
                yield "one-rank", one.lineno


def _changes(name: str) -> bool:
    return _is_in_place(name) or name in _LOADS


def _is_in_place(name: str) -> bool:
    return writes_in_place(name) and name != "requires_grad_"


def _scopes(tree: ast.Module) -> Iterator[ast.AST]:
    yield tree
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield node


def _called(node: ast.Call) -> str:
    match node.func:
        case ast.Attribute(attr=name) | ast.Name(id=name):
            return name
    return ""


def _of_call(node: ast.Call) -> Iterator[tuple[str, int]]:
    name = _called(node)
    if name in _SEEDS:
        yield "seed", node.lineno
    if _SCHEDULES.search(name):
        yield "schedule", node.lineno
    if name in _WRAPPERS:
        yield "wrap", node.lineno
    if name == "to_local" and not node.args and not node.keywords and not _is_of_gradient(node):
        yield "local", node.lineno
    if name == "set_requires_gradient_sync":
        yield "no-sync", node.lineno
    if name == "set_gradient_divide_factor":
        yield "divisor", node.lineno
    if name == "requires_grad_" and not _is_false(node.args):
        yield "unfreeze", node.lineno


def _is_of_gradient(node: ast.Call) -> bool:
    return "grad" in ast.unparse(node.func)


def _of_write(node: ast.Call, tainted: set[str]) -> Iterator[tuple[str, int]]:
    """Yield a call that writes to a gradient or a weight in place."""
    name = _called(node)
    if not _is_in_place(name):
        return
    if name.startswith("_foreach_"):
        is_gradient = any(_is_gradient(one, tainted) for one in node.args)
        yield "gradient" if is_gradient else "weight", node.lineno
        return
    owner = node.func.value if isinstance(node.func, ast.Attribute) else None
    if owner is not None:
        yield "gradient" if _is_gradient(owner, tainted) else "weight", node.lineno


def _of_assignment(node: ast.Assign | ast.AugAssign, target: ast.expr) -> Iterator[tuple[str, int]]:
    match target:
        case ast.Subscript(slice=ast.Constant(value="lr")):
            yield "rate", node.lineno
        case ast.Attribute(attr="requires_grad") if not _is_constant(node.value, False):
            yield "unfreeze", node.lineno
        case (
            ast.Attribute(attr="data") | ast.Subscript(value=ast.Attribute(attr="weight" | "data"))
        ):
            yield "weight", node.lineno


def _of_gradient(
    node: ast.Assign | ast.AugAssign, target: ast.expr, tainted: set[str]
) -> Iterator[tuple[str, int]]:
    """Yield an assignment that writes to a gradient."""
    is_set = isinstance(target, ast.Attribute) and target.attr == "grad"
    is_changed = isinstance(node, ast.AugAssign) and _is_gradient(target, tainted)
    if is_changed or (is_set and not _is_constant(node.value, None)):
        yield "gradient", node.lineno


def _is_constant(value: ast.expr, constant: object) -> bool:
    return isinstance(value, ast.Constant) and value.value is constant


def _gradients(scope: ast.AST) -> set[str]:
    """Return the variables of a scope that hold gradients, or lists of them."""
    tainted: set[str] = set()
    # Several rounds, because in a loop a name may be read above the line that assigns it.
    for _ in range(3):
        for node in nodes_within(scope):
            match node:
                case ast.Assign(targets=[ast.Name(id=name)], value=value):
                    pairs = [(name, value)]
                case ast.For(target=ast.Name(id=name), iter=value):
                    pairs = [(name, value)]
                case ast.For(target=ast.Tuple(elts=elements), iter=value):
                    pairs = [(e.id, value) for e in elements if isinstance(e, ast.Name)]
                case _:
                    continue
            tainted |= {name for name, value in pairs if _holds_gradient(value, tainted)}
    return tainted


def _holds_gradient(value: ast.expr, tainted: set[str]) -> bool:
    """Return whether a value is a gradient or a list of gradients, and not computed from them."""
    match value:
        case ast.ListComp(elt=inner) | ast.GeneratorExp(elt=inner):
            return _holds_gradient(inner, tainted)
        case ast.Call(func=ast.Attribute(value=owner, attr="to_local" | "view" | "flatten")):
            return _holds_gradient(owner, tainted)
        case ast.Call(func=ast.Name(id="list" | "zip" | "enumerate"), args=args):
            return any(_holds_gradient(one, tainted) for one in args)
    return _is_gradient(value, tainted)


def _is_gradient(value: ast.expr, tainted: set[str]) -> bool:
    match value:
        case ast.Attribute(attr="grad"):
            return True
        case ast.Attribute(value=owner, attr="data" | "_local_tensor"):
            return _is_gradient(owner, tainted)
        case ast.Call(func=ast.Attribute(value=owner, attr="to_local")):
            return _is_gradient(owner, tainted)
        case ast.Subscript(value=owner):
            return _is_gradient(owner, tainted)
        case ast.IfExp(body=one, orelse=other):
            return _is_gradient(one, tainted) or _is_gradient(other, tainted)
        case ast.Name(id=name):
            return name in tainted
    return False


def _is_false(args: list[ast.expr]) -> bool:
    return bool(args) and _is_constant(args[0], False)
