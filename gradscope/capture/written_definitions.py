"""Reads from classes which lines make modules and parameters, where nobody watched them do it."""

import sys
import sysconfig
from pathlib import Path
from weakref import ref

from gradscope.capture.assignments import assignments
from gradscope.capture.definitions import Definitions, Registration
from gradscope.capture.lines import Line
from gradscope.capture.naming import NamedModel

_INSTALLED = tuple(str(Path(sysconfig.get_path(name))) for name in ("stdlib", "purelib", "platlib"))


def written_definitions(named: NamedModel) -> Definitions:
    """Return the lines of the user's classes that assign the parts of a model.

    Of what is in a container that is the line that assigns the container.
    """
    found = Definitions()
    by_class: dict[type, dict[str, Line]] = {}
    for module, record in zip(named.modules, named.module_records, strict=True):
        if record.parent is not None:
            parent = named.modules[record.parent]
            attribute = record.path.rpartition(".")[2]
            line = _lines(type(parent), by_class).get(attribute, found.modules.get(parent))
            if line is not None:
                found.modules[module] = line
    for parameter, parameter_record in zip(named.parameters, named.parameter_records, strict=True):
        owner = named.modules[parameter_record.module]
        attribute = parameter_record.name.rpartition(".")[2]
        line = _lines(type(owner), by_class).get(attribute, found.modules.get(owner))
        if line is not None:
            found.parameters[parameter] = Registration(ref(owner), attribute, line, 0)
    return found


def _lines(kind: type, known: dict[type, dict[str, Line]]) -> dict[str, Line]:
    if kind not in known:
        known[kind] = {} if _is_installed(kind) else assignments(kind)
    return known[kind]


def _is_installed(kind: type) -> bool:
    file = getattr(sys.modules.get(kind.__module__), "__file__", None)
    return file is not None and file.startswith(_INSTALLED)
