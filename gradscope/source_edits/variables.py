"""Where code reads and assigns variables, and how it spells imported names."""

from collections.abc import Iterator

import libcst as cst
from libcst.helpers import get_full_name_for_node
from libcst.metadata import Assignment, BuiltinScope, GlobalScope

from gradscope.source_edits.source_file import SourceFile, only


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
