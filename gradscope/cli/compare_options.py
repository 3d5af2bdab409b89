"""The options that `gradscope compare` alone has."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

import typer

from gradscope.config.formats import ReportFormat
from gradscope.recording.finding import Severity

if TYPE_CHECKING:
    from gradscope.comparison.tolerance import Tolerance

_GATE = "Gate"
_WHAT = "What to compare"
_OUTPUT = "Output"

CompareArguments = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="TARGET|RECORDING...",
        help="Two or more: .gradscope files, path/file.py[:EXPR] or package.module[:EXPR]. Each is "
        "compared with the first. What follows -- is what the targets' files see as sys.argv.",
        show_default=False,
    ),
]
VaryOption = Annotated[
    str | None,
    typer.Option(
        "--vary",
        metavar="OPTION=V,V",
        help="Run each target with several values of an option of its own, as seed=0,1 or "
        "dtype=float32,bfloat16, and compare what comes of it.",
        rich_help_panel=_WHAT,
        show_default=False,
    ),
]
StepOption = Annotated[
    int | None,
    typer.Option(
        "--step",
        min=0,
        metavar="N",
        help="Of training runs, compare this step; all that they have in common if not given.",
        rich_help_panel=_WHAT,
        show_default=False,
    ),
]
TopOption = Annotated[
    int,
    typer.Option(
        "--top", min=1, metavar="N", help="List so many parameters, the worst first.",
        rich_help_panel="Report",
    ),
]  # fmt: skip
ComparisonFormatOption = Annotated[
    ReportFormat | None,
    typer.Option(
        "--output-format",
        help="How to write it; html for a file that ends so, else full, if not given.",
        rich_help_panel=_OUTPUT,
        show_default=False,
    ),
]


@dataclass(frozen=True, slots=True, kw_only=True)
class RegressionGroup:
    """What makes a comparison fail."""

    fail_on_regression: Annotated[
        bool,
        typer.Option(
            "--fail-on-regression",
            help="Exit with 1 where a recording is worse than the first one.",
            rich_help_panel=_GATE,
        ),
    ] = False
    tolerance: Annotated[
        float | None,
        typer.Option(
            "--tolerance",
            min=0.0,
            metavar="X",
            help="How much larger or smaller a gradient norm may be: 0.1 is from 1 / 1.1 to 1.1 "
            "times, which is the default; 1e-5 between ranks.",
            rich_help_panel=_GATE,
            show_default=False,
        ),
    ] = None
    max_loss_increase: Annotated[
        float | None,
        typer.Option(
            "--max-loss-increase",
            min=0.0,
            metavar="X",
            help="By which part of itself the loss may be higher; of runs, at their end. 0.1 if "
            "not given.",
            rich_help_panel=_GATE,
            show_default=False,
        ),
    ] = None
    min_cosine: Annotated[
        float | None,
        typer.Option(
            "--min-cosine",
            min=-1.0,
            max=1.0,
            metavar="X",
            help="The smallest cosine between two gradients, where they were kept; 0.9 if not "
            "given.",
            rich_help_panel=_GATE,
            show_default=False,
        ),
    ] = None
    fail_level: Annotated[
        Severity,
        typer.Option(
            "--fail-level",
            help="The mildest level at which a new finding is a regression.",
            rich_help_panel=_GATE,
        ),
    ] = "error"

    def limits(self) -> "Tolerance":
        """Return what passes."""
        from gradscope.comparison.tolerance import DEFAULT_COSINE, DEFAULT_LOSS, Tolerance

        loss, cosine = self.max_loss_increase, self.min_cosine
        return Tolerance(
            norm=self.tolerance,
            loss=DEFAULT_LOSS if loss is None else loss,
            cosine=DEFAULT_COSINE if cosine is None else cosine,
            fail_level=self.fail_level,
        )
