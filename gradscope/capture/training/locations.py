"""Locations in the script: a line, and the call on it."""

import ast
import functools
import linecache
from itertools import islice
from types import CodeType, FrameType
from typing import NamedTuple

from gradscope.capture.source.lines import INSTALLED, Line, is_users_file
from gradscope.capture.source.statements import parsed

_LONGEST_SUBJECT = 60
"""Number of characters of the text of a backward's root."""

# Owner of a file's code. Plain numbers: they are compared for every frame.
_PASSED_OVER, _LIBRARYS, _USERS = range(3)


class Location(NamedTuple):
    """Location of an event, as seen from within torch."""

    user: Line | None
    """Innermost line of code that is not installed."""
    inner: Line | None
    """Innermost line outside torch and the standard library: the user's or a trainer's."""
    code: CodeType | None
    """Code of the inner line."""
    instruction: int
    """Instruction on the inner line, as `f_lasti`."""
    users_instruction: int = 0
    """Instruction on the user's line."""
    argument: Line | None = None
    """Line of the user's argument that makes a trainer do this; None if it is not known."""

    @property
    def is_of_trainer(self) -> bool:
        """Whether a trainer's code makes the call, and the user's has called the trainer."""
        return self.user is not None and self.user != self.inner

    def expression(self) -> ast.expr | None:
        """Return the expression that is being evaluated on the inner line."""
        return None if self.code is None else _expression_at(self.code, self.instruction)

    def call(self) -> ast.Call | None:
        """Return the call that is being made on the inner line."""
        expression = self.expression()
        return expression if isinstance(expression, ast.Call) else None

    def users_call(self) -> ast.Call | None:
        """Return the call that is being made on the user's line."""
        if self.user is None:
            return None
        expression = _expression_at(self.user.code, self.users_instruction)
        return expression if isinstance(expression, ast.Call) else None

    def statement(self) -> ast.stmt | None:
        """Return the innermost statement on the inner line."""
        line, position = self.inner, self.position()
        if line is None:
            return None
        return _statement_at(line.code.co_filename, *(position or (line.number, None)))

    def position(self) -> tuple[int, int] | None:
        """Return line and column at which the executed expression begins; None if unknown."""
        if self.code is None:
            return None
        # `f_lasti` counts bytes, and every instruction has two.
        found = next(islice(self.code.co_positions(), self.instruction // 2, None), None)
        if found is None or found[0] is None or found[2] is None:
            return None
        return found[0], found[2]


NOWHERE = Location(None, None, None, 0)


class Locations:
    """Finds the lines of a script from within torch."""

    def __init__(self) -> None:
        self._kinds: dict[str, int] = {}

    def of(self, frame: FrameType | None) -> Location:
        """Return the location from which a frame was called."""
        inner: FrameType | None = None
        while frame is not None:
            kind = self._kind(frame.f_code)
            if kind != _PASSED_OVER:
                inner = inner or frame
                if kind == _USERS:
                    return _location(frame, inner)
            frame = frame.f_back
        return NOWHERE if inner is None else _location(None, inner)

    def users(self, frame: FrameType | None) -> list[FrameType]:
        """Return the frames of code that is not installed, innermost first."""
        frames = []
        while frame is not None:
            if self._kind(frame.f_code) == _USERS:
                frames.append(frame)
            frame = frame.f_back
        return frames

    def is_passed_over(self, code: CodeType) -> bool:
        """Return whether code belongs to torch, gradscope or the standard library."""
        return self._kind(code) == _PASSED_OVER

    def _kind(self, code: CodeType) -> int:
        kind = self._kinds.get(code.co_filename)
        if kind is None:
            kind = self._kinds[code.co_filename] = _kind_of(code.co_filename)
        return kind


def _location(user: FrameType | None, inner: FrameType) -> Location:
    line = Line(inner.f_code, inner.f_lineno)
    if user is None:
        return Location(None, line, inner.f_code, inner.f_lasti)
    users = line if user is inner else Line(user.f_code, user.f_lineno)
    return Location(users, line, inner.f_code, inner.f_lasti, user.f_lasti)


def is_installed(file: str) -> bool:
    """Return whether a file belongs to torch, gradscope or another installed package."""
    return _kind_of(file) != _USERS


def _kind_of(file: str) -> int:
    if not is_users_file(file):
        return _PASSED_OVER
    return _LIBRARYS if any(part in file for part in INSTALLED) else _USERS


_expressions: dict[tuple[int, int], tuple[CodeType, ast.expr | None]] = {}
"""By `id` of the code, which is kept alive, and instruction: hashing code is slow."""


def _expression_at(code: CodeType, instruction: int) -> ast.expr | None:
    known = _expressions.get((id(code), instruction))
    if known is None:
        known = (code, _read_expression(code, instruction))
        _expressions[id(code), instruction] = known
    return known[1]


def _read_expression(code: CodeType, instruction: int) -> ast.expr | None:
    """Return the expression of an instruction, read from the source."""
    position = next(islice(code.co_positions(), instruction // 2, None), None)
    if position is None:
        return None
    first, last, start, end = position
    if first is None or last is None or start is None or end is None:
        return None
    # As bytes: Python's columns count those of UTF-8.
    lines = [linecache.getline(code.co_filename, n).encode() for n in range(first, last + 1)]
    lines[-1] = lines[-1][:end]
    lines[0] = lines[0][start:]
    try:
        # In parentheses, because the lines of an expression may lack those around it.
        tree = ast.parse(b"(" + b"".join(lines) + b")", mode="eval")
    except (SyntaxError, ValueError, RecursionError):
        return None
    return tree.body


def stem(expression: ast.expr) -> str | None:
    """Return the name in an expression: `model`, `opt` for `self.opt`, `nets["g"]`.

    None if it means another object each time, as `nets[i]`, and for `self` itself.
    """
    match expression:
        case ast.Name(id=name):
            return None if name in ("self", "cls") else name
        case ast.Attribute(value=ast.Name(id="self" | "cls"), attr=attribute):
            return attribute
        case ast.Attribute(value=owner, attr=attribute):
            outer = stem(owner)
            return None if outer is None else f"{outer}.{attribute}"
        case ast.Subscript(value=owner, slice=ast.Constant(value=key)):
            outer = stem(owner)
            return None if outer is None else f"{outer}[{key!r}]"
    return None


def receiver(call: ast.Call | None) -> str | None:
    """Return the name of the object whose method is called."""
    if call is None or not isinstance(call.func, ast.Attribute):
        return None
    return stem(call.func.value)


@functools.lru_cache(maxsize=64)
def _statement_at(file: str, line: int, column: int | None) -> ast.stmt | None:
    """Return the innermost statement on a line; of several, that at a column."""
    tree = parsed("".join(linecache.getlines(file)))
    if tree is None:
        return None
    found = None
    for node in ast.walk(tree):
        if isinstance(node, ast.stmt) and is_within(node, line, column):
            found = node
    return found


def is_within(node: ast.stmt | ast.expr, line: int, column: int | None) -> bool:
    """Return whether a position is part of a node; a column of None is any."""
    last, end = node.end_lineno or node.lineno, node.end_col_offset
    if column is None or end is None:
        return node.lineno <= line <= last
    return (node.lineno, node.col_offset) <= (line, column) < (last, end)


@functools.lru_cache(maxsize=256)
def _subject(text: str) -> str:
    return text if len(text) <= _LONGEST_SUBJECT else text[: _LONGEST_SUBJECT - 1] + "…"


def _is_scale(expression: ast.expr) -> bool:
    match expression:
        case ast.Call(func=ast.Attribute(attr="scale")):
            return True
    return False


def subject_of(call: ast.Call | None) -> str:
    """Return the root of a backward call as written: `loss`."""
    if call is None or not isinstance(call.func, ast.Attribute):
        return ""
    owner: ast.expr = call.func.value
    if call.args and isinstance(owner, ast.Name | ast.Attribute):
        owner = call.args[0]  # for example `accelerator.backward(loss)`
    elif _is_scale(owner) and isinstance(owner, ast.Call) and owner.args:
        owner = owner.args[0]  # for example `scaler.scale(loss).backward()`
    return _subject(ast.unparse(owner))
