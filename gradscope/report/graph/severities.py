"""How bad the findings about modules and parameters are."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Self

from gradscope.analysis.report import Report
from gradscope.recording.finding import SEVERITIES, Severity


@dataclass(frozen=True, slots=True, kw_only=True)
class Severities:
    """The worst finding about each module and about each parameter."""

    modules: Mapping[int, Severity]
    """About a module, or what is in it."""
    named: Mapping[int, Severity]
    """About a module itself."""
    parameters: Mapping[int, Severity]

    @classmethod
    def of(cls, report: Report) -> Self:
        """Return those of a report."""
        paths = {path: row.index for row in report.modules for path in (row.path, *row.aliases)}
        names = {name: row.index for row in report.parameters for name in (row.name, *row.aliases)}
        modules: dict[int, Severity] = {}
        named: dict[int, Severity] = {}
        parameters: dict[int, Severity] = {}
        # The worst come first.
        for finding in report.findings:
            for name in finding.parameters:
                if name in names:
                    parameters.setdefault(names[name], finding.severity)
            for path in finding.modules:
                if path in paths:
                    named.setdefault(paths[path], finding.severity)
            owners = [name.rpartition(".")[0] for name in finding.parameters]
            for path in (*finding.modules, *owners):
                module = paths.get(path)
                while module is not None:
                    modules.setdefault(module, finding.severity)
                    module = report.modules[module].parent
        return cls(modules=modules, named=named, parameters=parameters)

    def of_boxes(self, modules: Iterable[int]) -> Severity | None:
        """Return the worst about some modules themselves: what is in them is drawn in them."""
        return _worst(self.named.get(module) for module in modules)

    def of_modules(self, modules: Iterable[int]) -> Severity | None:
        """Return the worst about some modules, and what is in them."""
        return _worst(self.modules.get(module) for module in modules)

    def of_parameters(self, parameters: Iterable[int]) -> Severity | None:
        """Return the worst about some parameters."""
        return _worst(self.parameters.get(parameter) for parameter in parameters)


def _worst(found: Iterable[Severity | None]) -> Severity | None:
    known = [severity for severity in found if severity is not None]
    return min(known, key=SEVERITIES.index, default=None)
