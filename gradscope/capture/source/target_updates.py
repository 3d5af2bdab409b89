"""Finds what may update a target network in a script's files, and updates that nothing calls."""

import ast
import itertools
import re
import sys
from collections.abc import Iterator

from gradscope.capture.source.lines import Line, is_users_file
from gradscope.capture.source.statements import code_at, tree_of
from gradscope.recording.records import is_installed

_WRITES = frozenset({"add_", "copy_", "lerp_", "mul_", "set_", "_foreach_lerp_", "_foreach_mul_"})
_TARGET = re.compile(r"targ|teacher|momentum_|_ema|ema_", re.IGNORECASE)
_RATE = re.compile(
    r"(\w+_)?(tau|ema|polyak)(_\w+)?"
    r"|\w*target_\w*(decay|momentum|every|update|freq|interval|period|rate|steps|sync)\w*"
    r"|(sync|update)_(target|every|freq)\w*",
    re.IGNORECASE,
)
_MOMENTUM = frozenset({"m", "momentum"})
"""Names of such rates, if they are attributes."""
_UPDATE = re.compile(
    r"sync|soft_update|hard_update|polyak|update_target|target_update|copy_weights|_foreach_"
)
_MEMBERS = re.compile(r"parameters\(|state_dict\(|\.values\(|\.items\(")
_LOOPS = (ast.For, ast.While, ast.AsyncFor)
_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
_PLAIN_BASES = frozenset({"Module", "object"})
_DECORATORS = frozenset({"no_grad", "inference_mode", "staticmethod"})


def may_update(line: Line) -> bool:
    """Return whether a loop, or a function that is used, may give a network another's weights.

    Args:
        line: A line of the training.
    """
    own = line.code.co_filename
    if is_installed(own):
        return True
    trees = [tree_of(file) for file in dict.fromkeys([own, *_users_files()])]
    named = {name for tree in trees for node in ast.walk(tree) for name in _names(node)}
    return any(_may_update(tree, named) for tree in trees)


def unread_rates(tree: ast.Module) -> Iterator[tuple[int, str]]:
    """Yield the line and the name of each rate or interval of such updates that nothing reads.

    Args:
        tree: A file.
    """
    variables, others = _read(tree)
    for node in ast.walk(tree):
        read, is_rate = others, False
        match node:
            case ast.Assign(targets=[ast.Name(id=name)]):
                read = variables | others
            case ast.Assign(targets=[ast.Attribute(attr=name)]):
                is_rate = name in _MOMENTUM
            case ast.Call(
                func=ast.Attribute(attr="add_argument"), args=[*_, ast.Constant(value=str(text))]
            ) if text.startswith("--"):
                name = text.removeprefix("--").replace("-", "_")
            case _:
                continue
        if (is_rate or _RATE.fullmatch(name)) and name not in read:
            yield node.lineno, name


def _read(tree: ast.Module) -> tuple[set[str], set[str]]:
    """Return the variables that a file reads, and the names of attributes and items."""
    variables, others = set[str](), set[str]()
    for node in ast.walk(tree):
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load):
            variables.add(node.id)
        elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Load):
            others.add(node.attr)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            others.add(node.value)  # of `getattr`, or of a dict
    return variables, others


def alias_line(line: Line) -> tuple[Line | None, str]:
    """Return the only line that binds a target to the network itself, and the target's name.

    Args:
        line: A line whose target the trained network computes.
    """
    file = line.code.co_filename
    tree = tree_of(file)
    source = ast.unparse(tree)
    found = [
        (one.lineno, ast.unparse(target))
        for one in _unconditional(tree)
        if isinstance(one, ast.Assign) and isinstance(one.value, ast.Name | ast.Attribute)
        for target in one.targets
        if _is_alias(ast.unparse(target), ast.unparse(one.value), source)
    ]
    code = code_at(file, found[0][0]) if len(found) == 1 else None
    return (None, "") if code is None else (Line(code, found[0][0]), found[0][1])


def _is_alias(target: str, value: str, source: str) -> bool:
    """Return whether a target is only bound once, and called, and the other is a network."""
    is_named = _TARGET.search(target.rpartition(".")[2]) and not _TARGET.search(value)
    is_network = f"{value}.parameters()" in source and f"{target}(" in source
    bindings = re.findall(rf"(?<![\w.]){re.escape(target)} = ", source)
    return bool(is_named) and is_network and len(bindings) == 1


def _unconditional(node: ast.AST) -> Iterator[ast.AST]:
    """Yield the nodes that no `if` or `try` decides on."""
    for one in ast.iter_child_nodes(node):
        if not isinstance(one, ast.If | ast.Try | ast.IfExp):
            yield one
            yield from _unconditional(one)


def _may_update(tree: ast.Module, named: set[str]) -> bool:
    scopes = [tree, *(one for one in ast.walk(tree) if isinstance(one, _FUNCTIONS))]
    repeated = {
        _last(one.func)
        for scope in scopes
        for one, in_loop in _own_nodes(scope)
        if in_loop and isinstance(one, ast.Call)
    }
    for function in scopes:
        is_used = function is tree or (
            not isinstance(function, ast.Module)
            and function.name in named
            and function.name != "__init__"
        )
        own = list(_own_nodes(function))
        trains_in_loop = any(_is_backward(one) for one, in_loop in own if in_loop)
        is_repeated = getattr(function, "name", None) in repeated
        is_outside = function is tree or (trains_in_loop and not is_repeated)
        if is_used and any(_updates(one) for one, in_loop in own if in_loop or not is_outside):
            return True
    return False


def _own_nodes(scope: ast.AST, *, in_loop: bool = False) -> Iterator[tuple[ast.AST, bool]]:
    """Yield the nodes of a scope without those of functions in it, and whether a loop has them.

    A loop over the parameters of networks runs once each time that it is reached.
    """
    for one in ast.iter_child_nodes(scope):
        if isinstance(one, _FUNCTIONS):
            continue
        inside = in_loop or (isinstance(one, _LOOPS) and not _is_over_parameters(one))
        yield one, inside
        yield from _own_nodes(one, in_loop=inside)


def _is_over_parameters(loop: ast.AST) -> bool:
    return isinstance(loop, ast.For) and _MEMBERS.search(ast.unparse(loop.iter)) is not None


def _is_backward(node: ast.AST) -> bool:
    return isinstance(node, ast.Call) and _last(node.func) in ("backward", "step")


def _updates(node: ast.AST) -> bool:
    """Return whether a node copies a state, or a loop over parameters writes to them."""
    if isinstance(node, ast.Call):
        name = _last(node.func)
        if name == "load_state_dict":
            return any(
                "state_dict" in ast.unparse(one) or isinstance(one, ast.Name) for one in node.args
            )
        return name in ("deepcopy", "update_parameters") or _UPDATE.search(name) is not None
    return (
        isinstance(node, ast.For)
        and _is_over_parameters(node)
        and any(_is_write(one) for one in ast.walk(node))
    )


def _is_write(node: ast.AST) -> bool:
    if isinstance(node, ast.Assign):
        return any(isinstance(one, ast.Attribute) and one.attr == "data" for one in node.targets)
    return isinstance(node, ast.Call) and _last(node.func) in _WRITES


def _last(value: ast.expr) -> str:
    return value.attr if isinstance(value, ast.Attribute) else getattr(value, "id", "")


def _names(node: ast.AST) -> Iterator[str]:
    """Yield the names that a node uses, those in strings among them."""
    if isinstance(node, ast.Name):
        yield node.id
    elif isinstance(node, ast.Attribute):
        yield node.attr
    elif isinstance(node, ast.Constant) and isinstance(node.value, str):
        yield node.value


def _users_files() -> Iterator[str]:
    for module in list(sys.modules.values()):
        file = getattr(module, "__file__", None)
        if isinstance(file, str) and file.endswith(".py") and _is_users(file):
            yield file


def _is_users(file: str) -> bool:
    return is_users_file(file) and not is_installed(file)


def uncalled_updates(tree: ast.Module, *, is_script: bool) -> Iterator[ast.FunctionDef]:
    """Yield the functions that write to one of two networks' parameters and are named nowhere else.

    Libraries may call a method of a class that is derived from theirs. A function of a module may
    be there for other scripts. A method may leave the loop to such a function, of its own name too.

    Args:
        tree: A file.
        is_script: Whether it is the script itself.
    """
    own = [one for one in tree.body if isinstance(one, ast.ClassDef)]
    functions = [one for one in tree.body if isinstance(one, ast.FunctionDef)]
    loops = {one.name for one in functions if any(map(_is_update, ast.walk(one)))}
    bodies = [one.body for one in own if {*map(_last_called, one.bases)} <= _PLAIN_BASES]
    updates = [
        one
        for one in itertools.chain(*bodies, tree.body if is_script else [])
        if isinstance(one, ast.FunctionDef)
        and {*map(_last_called, one.decorator_list)} <= _DECORATORS
        and any(_is_update(node) or _calls(node, loops) for node in ast.walk(one))
    ]
    if updates:
        named = {name for node in ast.walk(tree) for name in _names_and_imports(node)}
        yield from (one for one in updates if one.name not in named or _names_only_loop(tree, one))


def _calls(node: ast.AST, functions: set[str]) -> bool:
    """Return whether a node calls one of several functions by its plain name."""
    return isinstance(node, ast.Call) and getattr(node.func, "id", None) in functions


def _names_only_loop(tree: ast.Module, update: ast.FunctionDef) -> bool:
    """Return whether only a method itself names its name, for a function that has it, too."""
    if update in tree.body:
        return False
    everywhere, inside = (
        sum(name == update.name for node in ast.walk(one) for name in _names_and_imports(node))
        for one in (tree, update)
    )
    return everywhere == inside and any(_calls(node, {update.name}) for node in ast.walk(update))


def _names_and_imports(node: ast.AST) -> Iterator[str]:
    yield from _names(node)
    if isinstance(node, ast.alias):
        yield node.name


def _last_called(value: ast.expr) -> str:
    return _last_called(value.func) if isinstance(value, ast.Call) else _last(value)


def _is_update(node: ast.AST) -> bool:
    """Return whether a loop over the parameters of two networks writes to those of one."""
    # `zip` without a call is a variable of the script, such as postal codes.
    if not (isinstance(node, ast.For) and isinstance(node.iter, ast.Call)):
        return False
    pairs = [ast.unparse(one) for one in node.iter.args] if _last_called(node.iter) == "zip" else []
    return (
        len(pairs) == 2
        and all("parameters()" in one for one in pairs)
        and any(_is_write(inner) for statement in node.body for inner in ast.walk(statement))
    )
