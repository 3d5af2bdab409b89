"""How a file may spell the name of something in torch."""

import libcst as cst
from libcst.helpers import get_full_name_for_node

from gradscope.source_edits.source_file import SourceFile


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
