"""The named targets of the configuration."""

import re
from collections.abc import Mapping

from gradscope.config import keys
from gradscope.config.document import Table
from gradscope.config.values import Value

PLAIN_NAME = re.compile(r"\w[\w-]*")
"""Of a configured target: it can never be meant for a path, a file or a dotted module."""


def read_targets(table: Table) -> dict[str, Mapping[str, Value]]:
    """Return the values of every named target, by its name and the keys.

    Args:
        table: The table `tool.gradscope`.
    """
    targets = table.table(keys.TARGETS)
    return {name: _target(targets, name) for name in targets}


def _target(targets: Table, name: str) -> Mapping[str, Value]:
    if PLAIN_NAME.fullmatch(name) is None:
        targets.fail(
            name, "is no name of a target", help="letters, digits, - and _ tell it from a path"
        )
    if isinstance(targets.values[name], str):
        return {"target": targets.value(name, keys.LOADING["target"].check)}
    if not isinstance(targets.values[name], Mapping):
        example = f'{name} = "model.py", or [{targets.name}.{name}]'
        targets.fail(name, "has to be a string or a table", help=example)
    table = targets.table(name)
    table.check_keys(keys.OF_TARGET, "option of a target")
    if "target" not in table.values:
        targets.fail(name, "names no target", help='as target = "model.py:Net(hidden=8)"')
    found = {key: table.value(key, keys.OF_TARGET[key].check) for key in table}
    for one, other in keys.EXCLUSIVE:
        if one in found and other in found:
            table.fail(other, f"excludes `{one}`, which is given too", help="drop one of them")
    return found
