"""Limits of the difference between recordings above which it is a regression."""

from typing import Annotated

from gradscope.frozen import dataclass
from gradscope.options.declaration import Option
from gradscope.recording.finding import Severity

DEFAULT_NORM = 0.1
"""bfloat16 changes the norms of a model's gradients by up to 7 %; other threads or another order of
a sum by 1e-5. A term that is missing or counted twice changes them by more.
"""
DEFAULT_LOSS = 0.1
DEFAULT_COSINE = 0.9
RANK_NORM = 1e-5
"""Allowed relative change of a norm between ranks, whose reduced gradients differ only by rounding.
"""


_PANEL = "Regressions"


@dataclass(frozen=True, slots=True, kw_only=True)
class Tolerance:
    """Limits of what passes."""

    norm: Annotated[
        float | None,
        Option(
            "--tolerance",
            min=0.0,
            metavar="X",
            help="Allowed relative change of a gradient norm: 0.1 allows a factor of 1.1 up or "
            "down. Default: 0.1, or 1e-5 between ranks.",
            panel=_PANEL,
            show_default=False,
        ),
    ] = None
    """None uses `DEFAULT_NORM`, or `RANK_NORM` between ranks."""
    loss: Annotated[
        float,
        Option(
            "--max-loss-increase",
            min=0.0,
            metavar="X",
            help="Allowed relative increase of the loss; for training runs, of the final loss. "
            f"Default: {DEFAULT_LOSS}.",
            panel=_PANEL,
            show_default=False,
        ),
    ] = DEFAULT_LOSS
    cosine: Annotated[
        float,
        Option(
            "--min-cosine",
            min=-1.0,
            max=1.0,
            metavar="X",
            help=f"Smallest allowed cosine between stored gradients. Default: {DEFAULT_COSINE}.",
            panel=_PANEL,
            show_default=False,
        ),
    ] = DEFAULT_COSINE
    fail_level: Annotated[
        Severity,
        Option(help="Lowest level at which a new finding is a regression.", panel=_PANEL),
    ] = "error"

    def norm_limit(self, *, of_ranks: bool) -> float:
        """Return the allowed factor of a norm's growth or decrease, less one."""
        return self.norm if self.norm is not None else RANK_NORM if of_ranks else DEFAULT_NORM
