"""Where code reads and assigns variables, spells imported names, and writes numbers as literals."""

from collections.abc import Iterator

import libcst as cst
from libcst.helpers import get_full_name_for_node
from libcst.metadata import Assignment, BuiltinScope, GlobalScope

from gradscope.source_edits.source_file import SourceFile, only

Literal = cst.Float | cst.Integer


def reads(source: SourceFile, outer: cst.CSTNode, name: str) -> Iterator[cst.BaseExpression]:
    """Yield where code reads or assigns a variable, or an attribute such as `self.state`."""
    for node in (*source.inside(outer, cst.Name), *source.inside(outer, cst.Attribute)):
        parent = source.parent(node)
        is_keyword = isinstance(parent, cst.Arg) and parent.keyword is node
        is_part = isinstance(parent, cst.Attribute) and parent.attr is node
        if source.code(node) == name and not (is_keyword or is_part):
            yield node


def reads_behind(
    source: SourceFile, statement: cst.BaseSmallStatement, name: str
) -> list[cst.BaseExpression]:
    """Return where the function of a statement names a variable behind it."""
    function = source.around(statement, cst.FunctionDef)
    outer = source.module if function is None else function.body
    end = source.end(statement)
    return [node for node in reads(source, outer, name) if source.start(node) >= end]


def binding_of(source: SourceFile, name: cst.BaseExpression) -> cst.CSTNode | None:
    """Return the name, parameter or import that binds a variable; None if several do."""
    scope = source.scope(name) if isinstance(name, cst.Name) else None
    if scope is None or not isinstance(name, cst.Name):
        return None
    found = only(scope[name.value])
    return found.node if isinstance(found, Assignment) else None


def value_of(source: SourceFile, name: cst.BaseExpression) -> cst.BaseExpression | None:
    """Return the value of a variable that is assigned once, and by its name alone."""
    binding = binding_of(source, name)
    target = None if binding is None else source.parent(binding)
    if isinstance(target, cst.AssignTarget):
        statement = source.parent(target)
        is_alone = isinstance(statement, cst.Assign) and len(statement.targets) == 1
        return statement.value if is_alone and isinstance(statement, cst.Assign) else None
    is_own = isinstance(target, cst.AnnAssign) and target.target is binding
    return target.value if is_own and isinstance(target, cst.AnnAssign) else None


def is_local(source: SourceFile, name: cst.Name) -> bool:
    """Return whether a variable belongs to a function, and not to the whole file."""
    scope = source.scope(name)
    bindings = () if scope is None else scope[name.value]
    return any(not isinstance(one.scope, GlobalScope | BuiltinScope) for one in bindings)


def is_visible(source: SourceFile, expression: cst.BaseExpression, at: cst.CSTNode) -> bool:
    """Return whether all names of an expression mean the same at another node."""
    here, there = source.scope(expression), source.scope(at)
    if here is None or there is None:
        return False
    return all(
        {id(one) for one in here[name]} == {id(one) for one in there[name]}
        for name in names_in(source, expression)
    )


def names_in(source: SourceFile, expression: cst.CSTNode) -> set[str]:
    """Return the names in an expression or statement, without attributes and keywords."""
    return {name.value for name in _free_names(source, expression)}


def _free_names(source: SourceFile, expression: cst.CSTNode) -> Iterator[cst.Name]:
    """Yield the names in an expression or statement, without attributes and keywords."""
    for node in source.inside(expression, cst.Name):
        parent = source.parent(node)
        is_keyword = isinstance(parent, cst.Arg) and parent.keyword is node
        is_part = isinstance(parent, cst.Attribute) and parent.attr is node
        if not (is_keyword or is_part):
            yield node


def spelled(source: SourceFile, name: str) -> str | None:
    """Return a full name, as `torch.nn.ModuleList`, in terms of the imports of a file.

    None if no import at the top of the file leads to it.
    """
    bound = dict(_imports(source))
    matching = [
        (alias, imported)
        for alias, imported in bound.items()
        if f"{name}.".startswith(f"{imported}.")
    ]
    if not matching:
        return None
    alias, imported = max(matching, key=lambda pair: len(pair[1]))
    return alias + name[len(imported) :]


def _imports(source: SourceFile) -> list[tuple[str, str]]:
    """Return the names that imports at the top of a file bind, and what each stands for."""
    found = []
    for statement in source.module.body:
        if not isinstance(statement, cst.SimpleStatementLine):
            continue
        for one in statement.body:
            if isinstance(one, cst.Import | cst.ImportFrom) and not isinstance(
                one.names, cst.ImportStar
            ):
                found += [_bound(one, alias) for alias in one.names]
    return found


def _bound(statement: cst.Import | cst.ImportFrom, alias: cst.ImportAlias) -> tuple[str, str]:
    name = alias.evaluated_name
    if isinstance(statement, cst.ImportFrom):
        module = "" if statement.module is None else get_full_name_for_node(statement.module)
        return alias.evaluated_alias or name, f"{'.' * len(statement.relative)}{module}.{name}"
    if alias.evaluated_alias is not None:
        return alias.evaluated_alias, name
    return name.partition(".")[0], name.partition(".")[0]


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
