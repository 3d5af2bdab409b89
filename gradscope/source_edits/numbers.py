"""Numbers that the code writes as literals."""

from collections.abc import Iterator

import libcst as cst

from gradscope.source_edits.source_file import SourceFile, only
from gradscope.source_edits.variables import reads, value_of

Literal = cst.Float | cst.Integer


def literal_of(source: SourceFile, node: cst.BaseExpression) -> Literal | None:
    """Return the literal of an expression, or of the variable or setting that nothing else reads.

    A setting is an entry of the only dictionary with its key, an option of the only parser, or a
    field with a default.
    """
    if isinstance(node, cst.Float | cst.Integer):
        return node
    if isinstance(node, cst.Attribute | cst.Subscript):
        return _setting(source, node)
    value = value_of(source, node)
    if not isinstance(value, cst.Float | cst.Integer) or not isinstance(node, cst.Name):
        return None
    is_read_once = len(list(reads(source, source.module, node.value))) == 2  # and assigned
    return value if is_read_once else None


def _setting(source: SourceFile, node: cst.Attribute | cst.Subscript) -> Literal | None:
    """Return the literal of `settings["lr"]` or `args.lr` if a file sets and reads it once."""
    alike = source.all(cst.Attribute if isinstance(node, cst.Attribute) else cst.Subscript)
    ends = source.code(node).partition("." if isinstance(node, cst.Attribute) else "[")[2]
    # Another reader would get the new number, too.
    if sum(source.code(one).endswith(ends) for one in alike) > 1:
        return None
    if isinstance(node, cst.Attribute):
        values = [*_options(source, node.attr.value), *_fields(source, node.attr.value)]
    else:
        key = only(node.slice)
        index = key.slice if key is not None else None
        name = _text(index.value) if isinstance(index, cst.Index) else None
        values = [] if name is None else list(_entries(source, name))
    value = only(values)
    return value if isinstance(value, cst.Float | cst.Integer) else None


def _text(node: cst.BaseExpression) -> str | None:
    """Return the text of a string literal."""
    value = node.evaluated_value if isinstance(node, cst.SimpleString) else None
    return value if isinstance(value, str) else None


def _options(source: SourceFile, name: str) -> Iterator[cst.BaseExpression]:
    """Yield the defaults of the options of a name in `parser.add_argument("--name", default=…)`."""
    for call in source.all(cst.Call):
        if isinstance(call.func, cst.Attribute) and call.func.attr.value == "add_argument":
            flags = [_text(one.value) for one in call.args if one.keyword is None]
            names = [one.lstrip("-").replace("-", "_") for one in flags if one is not None]
            if name in names:
                yield from _keywords(call, "default")


def _keywords(call: cst.Call, name: str) -> Iterator[cst.BaseExpression]:
    for one in call.args:
        if one.keyword is not None and one.keyword.value == name:
            yield one.value


def _fields(source: SourceFile, name: str) -> Iterator[cst.BaseExpression]:
    """Yield the defaults of the fields of a name in classes."""
    for field in source.all(cst.AnnAssign):
        is_own = isinstance(field.target, cst.Name) and field.target.value == name
        in_class = source.around(field, cst.ClassDef, cst.FunctionDef)
        if is_own and field.value is not None and isinstance(in_class, cst.ClassDef):
            yield field.value


def _entries(source: SourceFile, name: str) -> Iterator[cst.BaseExpression]:
    """Yield the values of a key in dictionaries, and what is assigned to it."""
    for element in source.all(cst.DictElement):
        if _text(element.key) == name:
            yield element.value
    for call in source.all(cst.Call):
        if isinstance(call.func, cst.Name) and call.func.value == "dict":
            yield from _keywords(call, name)
    for target in source.all(cst.AssignTarget):
        # An assignment leaves the value open: a target is yielded, which is no literal.
        if isinstance(target.target, cst.Subscript) and f'"{name}"' in source.code(
            target.target
        ).replace("'", '"'):
            yield target.target


def number_code(value: float) -> str:
    """Return a number of one digit or two as people write it."""
    rounded = float(f"{value:.1g}") if value < 1 else float(f"{value:.2g}")
    return repr(rounded)
