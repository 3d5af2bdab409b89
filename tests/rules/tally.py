"""What is found in healthy models: no error, and hardly a warning."""

from collections.abc import Sequence

import torch

from gradscope.recording.finding import Finding

WARNINGS_PER_PARAMETER = 0.02


class Tally:
    """The parameters and warnings of all that was inspected so far."""

    def __init__(self):
        self.parameters = 0
        self.warnings: list[str] = []

    def add(self, name: str, model: torch.nn.Module, findings: Sequence[Finding]) -> None:
        self.parameters += len(list(model.parameters()))
        self.warnings += [
            f"{name}: {finding.rule} {finding.message}"
            for finding in findings
            if finding.severity == "warning"
        ]

    def check(self) -> None:
        """Fail if there are many warnings for so many parameters."""
        limit = WARNINGS_PER_PARAMETER * self.parameters
        assert len(self.warnings) <= limit, "\n".join(self.warnings)


def errors(findings: Sequence[Finding]) -> list[str]:
    """Return what the findings that are errors say."""
    return [f"{one.rule}: {one.message}" for one in findings if one.severity == "error"]
