"""Finds modules and parameters that were loaded, replaced, frozen or initialized again."""

import ast
import linecache
import re
import sys
from collections.abc import Iterable, Iterator
from types import CodeType
from typing import NamedTuple

import torch
from torch import Tensor

from gradscope.capture.naming import dtype_name
from gradscope.capture.source.definitions import Registration
from gradscope.capture.source.lines import Line
from gradscope.capture.source.statements import code_at, tree_of
from gradscope.capture.source.target_updates import uncalled_updates, unread_rates
from gradscope.capture.step.assemble import Assembler
from gradscope.capture.training.locations import is_installed
from gradscope.probes.context import ProbeContext
from gradscope.recording.evidence.parameters import (
    CastRecord,
    FreezeRecord,
    InitialisationRecord,
    LoadedRecord,
    PartlyUnfrozenRecord,
    ReplacementRecord,
    UncalledUpdateRecord,
)

_FREEZES = re.compile(
    r"requires_grad(\s*=\s*False|_\(\s*(requires_grad\s*=\s*)?False)"
    # What is computed, as from a name, freezes some.
    r"|\.requires_grad(\s*=(?!=)|_\()\s*(requires_grad\s*=)?\s*(?!True\b|requires_grad\s*=)[\w('\"]"
)
_HALF = {torch.float16: "float16|half", torch.bfloat16: "bfloat16"}
"""Names of the short types in calls, as patterns."""
_CAST = r"\.to\([^#]*\b({0})\b|\.({0})\(\)|dtype\s*=\s*(torch\.)?({0})\b"


def probe_freezes(context: ProbeContext) -> str | None:
    """Record which modules were loaded or replaced, and the lines that freeze or cast weights."""
    loaded = context.definitions.loaded
    for position, module in enumerate(context.named.modules):
        if module in loaded or _is_pretrained(module):
            context.assembler.note(LoadedRecord(module=position))
        line = context.definitions.replacements.get(module)
        if line is not None:
            site = context.assembler.site_of(line)
            context.assembler.note(ReplacementRecord(module=position, site=site))
    frozen = [one for one in context.named.parameters if not one.requires_grad]
    for file in sorted(_files(context, frozen)):
        note_freezes(context.assembler, file)
        _note_partly_unfrozen(context, file)
    if frozen:
        _note_uncalled_updates(context)
    _note_casts(context)
    return None


def note_freezes(assembler: Assembler, file: str) -> None:
    """Record the lines of a file that set `requires_grad` to False."""
    for line in _lines_with(file, _FREEZES):
        site = assembler.site_of(line)
        if site is not None:
            assembler.note(FreezeRecord(site=site))


def _note_casts(context: ProbeContext) -> None:
    """Record the lines that name a short type, in the files that make parameters of this type."""
    for dtype, names in _HALF.items():
        casts = re.compile(_CAST.format(names))
        short = [one for one in context.named.parameters if one.dtype is dtype]
        for file in sorted(_files(context, short)):
            for line in _lines_with(file, casts):
                site = context.assembler.site_of(line)
                if site is not None and "autocast" not in linecache.getline(file, line.number):
                    context.assembler.note(CastRecord(site=site, dtype=dtype_name(dtype)))


def _note_partly_unfrozen(context: ProbeContext, file: str) -> None:
    for numbers in partly_unfrozen(tree_of(file)):
        codes = [(code_at(file, number), number) for number in numbers]
        lines = [Line(code, number) for code, number in codes if code is not None]
        match [context.assembler.site_of(line) for line in lines]:
            case [int(frozen), int(unfrozen)]:
                context.assembler.note(PartlyUnfrozenRecord(frozen=frozen, unfrozen=unfrozen))


def _note_uncalled_updates(context: ProbeContext) -> None:
    """Record what would update a copy of a network, if no module of the user's names it."""
    script = _file_of(sys.modules.get("__main__"))
    modules = map(_file_of, list(sys.modules.values()))
    files = [one for one in dict.fromkeys(modules) if one is not None and not is_installed(one)]
    for file in files:
        for function in _updates_in(file, is_script=file == script):
            name = re.compile(rf"\b{function.name}\b")
            others = (other for other in files if other != file)
            # By word: another file may call it through any object.
            if not any(map(name.search, map(_source_of, others))):
                code = code_at(file, function.lineno)
                line = None if code is None else Line(code, function.lineno)
                site = None if line is None else context.assembler.site_of(line)
                if site is not None:
                    context.assembler.note(UncalledUpdateRecord(site=site, name=function.name))
    if script is not None:
        _note_unread_rates(context, script, [one for one in files if one != script])


def _note_unread_rates(context: ProbeContext, script: str, others: list[str]) -> None:
    """Record the numbers that should say how a copy is updated, and that no file reads."""
    for number, name in unread_rates(tree_of(script)):
        code = code_at(script, number)
        line = None if code is None else Line(code, number)
        site = None if line is None else context.assembler.site_of(line)
        if site is not None and not any(name in _source_of(one) for one in others):
            context.assembler.note(UncalledUpdateRecord(site=site, name=name, is_rate=True))


_KNOWN: dict[tuple[str, bool], tuple[list[str], tuple[ast.FunctionDef, ...]]] = {}
"""By file, and whether it is the script: its lines, and what was found in them."""


def _updates_in(file: str, *, is_script: bool) -> tuple[ast.FunctionDef, ...]:
    # Every file of the user's is searched: a test suite that inspects many models has hundreds.
    lines = linecache.getlines(file)
    searched, found = _KNOWN.get((file, is_script), (None, ()))
    # `linecache` returns the same list until a file has changed.
    if searched is not lines:
        source = "".join(lines)
        # A search for words is far cheaper than parsing.
        may_update = "zip(" in source and "parameters()" in source
        found = tuple(uncalled_updates(tree_of(file), is_script=is_script)) if may_update else ()
        _KNOWN[file, is_script] = lines, found
    return found


def _source_of(file: str) -> str:
    return "".join(linecache.getlines(file))


def _file_of(module: object) -> str | None:
    file = getattr(module, "__file__", None)
    return file if isinstance(file, str) and file.endswith(".py") else None


def _is_pretrained(module: object) -> bool:
    """Return whether a module says where its weights were loaded from, as those of transformers."""
    # By `vars`, because asking a module runs its `__getattr__`.
    name = vars(module).get("name_or_path")
    return isinstance(name, str) and bool(name)


def _files(context: ProbeContext, parameters: Iterable[Tensor]) -> set[str]:
    """Return the user's files that make some parameters, or call installed code that does."""
    registrations = map(context.definitions.registration, parameters)
    lines = [_users_line(context, one) for one in registrations if one is not None]
    return {line.code.co_filename for line in lines if line is not None}


def _users_line(context: ProbeContext, registration: Registration) -> Line | None:
    """Return the user's line that registered a parameter, or called what did."""
    line, module = registration.line, registration.module()
    if line is None or not is_installed(line.code.co_filename):
        return line
    return None if module is None else context.definitions.callers.get(module)


def _lines_with(file: str, pattern: re.Pattern[str]) -> Iterator[Line]:
    source = linecache.getlines(file)
    numbers = [number for number, text in enumerate(source, 1) if pattern.search(text)]
    if not numbers:
        return
    try:
        code = compile("".join(source), file, "exec", dont_inherit=True)
    except SyntaxError:  # magic commands of a notebook
        return
    for number in numbers:
        yield Line(_innermost(code, number), number)


def _innermost(code: CodeType, number: int) -> CodeType:
    """Return the innermost function that contains a line."""
    for inner in code.co_consts:
        if isinstance(inner, CodeType):
            last = max((line for *_, line in inner.co_lines() if line is not None), default=0)
            if inner.co_firstlineno <= number <= last:
                return _innermost(inner, number)
    return code


def probe_initialisations(context: ProbeContext) -> str | None:
    """Record the line of `torch.nn.init` for each parameter that another line made."""
    for index, parameter in enumerate(context.named.parameters):
        found = context.definitions.initialisations.of(parameter)
        made = context.definitions.registration(parameter)
        if found is None or (made is not None and made.line == found.line):
            continue
        site = context.assembler.site_of(found.line)
        if site is not None:
            context.assembler.note(
                InitialisationRecord(parameter=index, site=site, function=found.function)
            )
    return None


class _Switch(NamedTuple):
    """A statement that freezes or unfreezes something."""

    what: str
    """The module, as it is written."""
    is_on: bool
    """Whether it requires grad afterwards."""
    line: int


def partly_unfrozen(tree: ast.AST) -> Iterator[tuple[int, int]]:
    """Yield the line that freezes a whole, and the one that unfreezes a part of it.

    Whoever freezes all but a part does both at once. A use of the whole in between shows that the
    whole was to be frozen for this use alone.
    """
    for function in ast.walk(tree):
        if isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef):
            yield from _in_body(function.body)


def _in_body(body: list[ast.stmt]) -> Iterator[tuple[int, int]]:
    switches = {position: found for position, one in enumerate(body) if (found := _switch(one))}
    for first, frozen in switches.items():
        later = [(at, one) for at, one in switches.items() if at > first and one.is_on]
        if frozen.is_on or any(one.what == frozen.what for _, one in later):
            continue
        for at, one in later:
            is_part = one.what.startswith(f"{frozen.what}.")
            if is_part and any(_uses(statement, frozen.what) for statement in body[first + 1 : at]):
                yield frozen.line, one.line


def _switch(statement: ast.stmt) -> _Switch | None:
    match statement:
        case ast.For(
            target=ast.Name(id=name), iter=ast.Call(func=ast.Attribute(value=whole)) as of
        ):
            inner = next(filter(None, map(_switch, statement.body)), None)
            is_over = ast.unparse(of.func).endswith("parameters")
            if inner is not None and inner.what == name and is_over:
                return _Switch(ast.unparse(whole), inner.is_on, statement.lineno)
        case ast.Assign(
            targets=[ast.Attribute(value=what, attr="requires_grad")],
            value=ast.Constant(value=bool(value)),
        ):
            return _Switch(ast.unparse(what), value, statement.lineno)
        case ast.Expr(value=ast.Call() as call):
            return _switch_of(call)
    return None


def _switch_of(call: ast.Call) -> _Switch | None:
    given = [*call.args, *(one.value for one in call.keywords)]
    values = [one.value for one in given if isinstance(one, ast.Constant)]
    flag = next((one for one in values if isinstance(one, bool)), None)
    match call.func:
        case ast.Attribute(value=what, attr="requires_grad_"):
            return _Switch(ast.unparse(what), flag is not False, call.lineno)
        case ast.Attribute(value=what, attr="freeze" | "unfreeze" as name) if not call.args:
            return _Switch(ast.unparse(what), name == "unfreeze", call.lineno)
        case ast.Name(id=name) | ast.Attribute(attr=name) if call.args:
            whole = ast.unparse(call.args[0])
            if name in ("freeze", "unfreeze"):
                return _Switch(whole, name == "unfreeze", call.lineno)
            if flag is not None and ("grad" in name or "trainable" in name):
                return _Switch(whole, flag, call.lineno)
    return None


def _uses(statement: ast.stmt, whole: str) -> bool:
    """Return whether a statement calls something, or hands it to a call."""
    return _switch(statement) is None and any(
        whole in map(ast.unparse, [call.func, *call.args])
        for call in ast.walk(statement)
        if isinstance(call, ast.Call)
    )
