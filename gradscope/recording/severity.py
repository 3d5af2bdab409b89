"""How bad a finding is."""

from typing import Literal

Severity = Literal["error", "warning", "note"]
"""SARIF's levels."""

SEVERITIES: tuple[Severity, ...] = ("error", "warning", "note")
"""The worst first."""


def at_least(level: Severity) -> tuple[Severity, ...]:
    """Return the levels that are as bad as one or worse, the worst first."""
    return SEVERITIES[: SEVERITIES.index(level) + 1]
