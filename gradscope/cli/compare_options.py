"""Options of `gradscope compare`."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

import typer

from gradscope.config.formats import ReportFormat
from gradscope.recording.finding import Severity

if TYPE_CHECKING:
    from gradscope.comparison.tolerance import Tolerance

_REGRESSIONS = "Regressions"
_WHAT = "What to compare"
_OUTPUT = "Output"

CompareArguments = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="TARGET|RECORDING...",
        help="Two or more of: .gradscope files, path/file.py[:EXPR] or package.module[:EXPR]. Each "
        "is compared with the first. Arguments after -- go to the targets' files (sys.argv).",
        show_default=False,
    ),
]
VaryOption = Annotated[
    str | None,
    typer.Option(
        "--vary",
        metavar="OPTION=V,V",
        help="Run each target with several values of an option and compare the runs, such as "
        "seed=0,1 or dtype=float32,bfloat16.",
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
        help="Compare this step of training runs. Default: all steps in common.",
        rich_help_panel=_WHAT,
        show_default=False,
    ),
]
TopOption = Annotated[
    int,
    typer.Option(
        "--top", min=1, metavar="N", help="List N parameters, worst first.",
        rich_help_panel="Report",
    ),
]  # fmt: skip
ComparisonFormatOption = Annotated[
    ReportFormat | None,
    typer.Option(
        "--output-format",
        help="Report format. Default: html for .html files, otherwise full.",
        rich_help_panel=_OUTPUT,
        show_default=False,
    ),
]


@dataclass(frozen=True, slots=True, kw_only=True)
class RegressionGroup:
    """Options that say which differences are regressions."""

    fail_on_regression: Annotated[
        bool,
        typer.Option(
            "--fail-on-regression",
            help="Exit with code 1 if a recording is worse than the first.",
            rich_help_panel=_REGRESSIONS,
        ),
    ] = False
    tolerance: Annotated[
        float | None,
        typer.Option(
            "--tolerance",
            min=0.0,
            metavar="X",
            help="Allowed relative change of a gradient norm: 0.1 allows a factor of 1.1 up or "
            "down. Default: 0.1, or 1e-5 between ranks.",
            rich_help_panel=_REGRESSIONS,
            show_default=False,
        ),
    ] = None
    max_loss_increase: Annotated[
        float | None,
        typer.Option(
            "--max-loss-increase",
            min=0.0,
            metavar="X",
            help="Allowed relative increase of the loss; for training runs, of the final loss. "
            "Default: 0.1.",
            rich_help_panel=_REGRESSIONS,
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
            help="Smallest allowed cosine between stored gradients. Default: 0.9.",
            rich_help_panel=_REGRESSIONS,
            show_default=False,
        ),
    ] = None
    fail_level: Annotated[
        Severity,
        typer.Option(
            "--fail-level",
            help="Lowest level at which a new finding is a regression.",
            rich_help_panel=_REGRESSIONS,
        ),
    ] = "error"

    def limits(self) -> "Tolerance":
        """Return the tolerance that the options set."""
        from gradscope.comparison.tolerance import DEFAULT_COSINE, DEFAULT_LOSS, Tolerance

        loss, cosine = self.max_loss_increase, self.min_cosine
        return Tolerance(
            norm=self.tolerance,
            loss=DEFAULT_LOSS if loss is None else loss,
            cosine=DEFAULT_COSINE if cosine is None else cosine,
            fail_level=self.fail_level,
        )
