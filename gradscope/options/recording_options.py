"""Options for the size of a recording."""

import re
from typing import Annotated, Literal

from gradscope.frozen import dataclass
from gradscope.options.checks import WrongValue, text
from gradscope.options.declaration import Option

_UNITS = {"": 1, "K": 10**3, "M": 10**6, "G": 10**9, "T": 10**12}
_SIZE = re.compile(r"([0-9]*\.?[0-9]+) ?([KMGT]?)B?", re.IGNORECASE)
_ALL = "all"

KeepBatches = Literal["none", "on-trouble"]

LEAST = 1_000_000
"""Smallest limit in bytes: an empty recording takes a third of it."""


def bytes_of(size: str) -> int | None:
    """Return a size such as `256MB` in bytes; None for `all`.

    Raises:
        WrongValue: It is no size, or too small.
    """
    if size.strip().lower() == _ALL:
        return None
    found = _SIZE.fullmatch(size.strip())
    number = 0 if found is None else round(float(found[1]) * _UNITS[found[2].upper()])
    if number < LEAST:
        raise WrongValue(
            f"is `{size}`, expected a size such as 256MB, or all",
            help=f"{LEAST // 10**6}MB is the least" if found else None,
        )
    return number


def _size(value: object) -> str:
    """Return the text of a size."""
    found = text(value)
    bytes_of(found)
    return found


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordingOptions:
    """Options that a run takes from the configuration, too."""

    sync_checks: Annotated[
        int | None,
        Option(
            min=1,
            metavar="N",
            help="Every Nth step, ranks of a distributed job compare digests of replicated weights "
            "and reduced gradients, and tell the first difference at once. Default: off.",
            python="Compare digests of replicated weights and reduced gradients with rank 0 in "
            "every Nth step, and tell the first difference at once.",
            panel="Recording",
        ),
    ] = None
    keep: Annotated[
        str | None,
        Option(
            metavar="SIZE",
            help="Largest size of the recording: it keeps the last 1,000 steps and those around "
            "events whole, and summaries of the others. all: keep every step. Default: 256MB.",
            python="Largest size of the recording, such as `256MB`, which is the default: it keeps "
            "the last 1,000 steps and those around events whole, and summaries of the others. "
            "`all` keeps every step.",
            panel="Recording",
            check=_size,
        ),
    ] = None
    keep_batches: Annotated[
        KeepBatches | None,
        Option(
            help="Store the batches of steps with a spike or NaN, for gradscope inspect --batch. "
            "The recording then contains training data. Default: none.",
            python="`on-trouble` stores the batches of steps with a spike or NaN, for `gradscope "
            "inspect --batch`. The recording then contains training data.",
            panel="Recording",
        ),
    ] = None

    @property
    def keeps(self) -> str:
        """Largest size of the recording."""
        return self.keep or KEEP

    @property
    def keeps_batches(self) -> bool:
        """Whether the batches of steps with trouble are stored."""
        return self.keep_batches == "on-trouble"


KEEP = "256MB"
"""Largest size of a recording, unless another is wanted."""
