"""How a training run came to its end."""

from dataclasses import dataclass
from typing import ClassVar


@dataclass(frozen=True, slots=True, kw_only=True)
class RunEnding:
    """The end of a run, written last: a recording without it was cut short, as by a kill."""

    table: ClassVar[str] = "run_ending"
    seconds: float
    """Since the recording began."""
    reason: str
    """Why it ended before the script did, as `ValueError` or `--max-steps 100`; empty where the
    script came to its own end."""
