"""Which examinations were made, so that nothing found is told from nothing looked for."""

from dataclasses import dataclass
from typing import ClassVar


@dataclass(frozen=True, slots=True, kw_only=True)
class ExaminationRecord:
    """An experiment or a look at the model, made or not."""

    table: ClassVar[str] = "examination"
    name: str
    """As in `gradscope.probes.examinations`: `forward`."""
    obstacle: str | None
    """Why it was not made; None where it was."""
