"""The options that several commands share, in groups; None where an option was not given."""

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from gradscope.cli.console import ColorChoice
from gradscope.cli.declared import Argument, Option
from gradscope.config.formats import OutputFormat
from gradscope.recording.stored_gradient import KeepMode

if TYPE_CHECKING:
    from gradscope.analysis.view import ViewOptions

_TARGET = "Target"
_TRIAL = "Steps"
_VIEW = "Report"
_OUTPUT = "Output"
_RULES = "Rules"

Value = str | int | float | bool | tuple[str, ...]
"""Value of an option, as parsed from the command line."""

TargetArgument = Annotated[
    str,
    Argument(
        metavar="TARGET",
        help="path/file.py[:EXPR] or package.module[:EXPR]. EXPR is a name in the file, or a call "
        "with literal arguments: 'model.py:Net(hidden=64)'.",
        show_default=False,
    ),
]
FileArguments = Annotated[
    list[str] | None,
    Argument(
        metavar="-- ARGS", help="Arguments for the target's file (sys.argv).", show_default=False
    ),
]


def given_in(group: object) -> dict[str, Value]:
    """Return the options of a group that were given, by their configuration keys."""
    values = {
        field.name: getattr(group, field.name)
        for field in dataclasses.fields(group)  # type: ignore[arg-type]
    }
    return {
        name.replace("_", "-"): tuple(value) if isinstance(value, list) else value
        for name, value in values.items()
        if value is not None
    }


@dataclass(frozen=True, slots=True, kw_only=True)
class TargetGroup:
    """Options that say how to load a target."""

    model: Annotated[
        str | None,
        Option(
            "--model",
            metavar="EXPR",
            help="Expression that gives the model.",
            rich_help_panel=_TARGET,
        ),
    ] = None
    batch: Annotated[
        str | None,
        Option(
            "--batch",
            metavar="EXPR|FILE",
            help="Expression that gives the batch, or a .pt, .npz, .safetensors or .json file.",
            rich_help_panel=_TARGET,
        ),
    ] = None
    loss: Annotated[
        str | None,
        Option(
            "--loss",
            metavar="EXPR|NAME",
            help="Expression that gives the loss, or cross-entropy, mse, mean or sum-squares.",
            rich_help_panel=_TARGET,
        ),
    ] = None
    input: Annotated[
        list[str] | None,
        Option(
            "--input",
            metavar="SPEC",
            help="Random input, \\[name=]\\[dtype\\[low,high]:]sizes, such as 8,3,32,32 or "
            "ids=int64[0,100]:2,16. Repeat for several inputs.",
            rich_help_panel=_TARGET,
        ),
    ] = None
    grad_output: Annotated[
        str | None,
        Option(
            "--grad-output",
            metavar="ones|randn|FILE",
            help="Start backward from the output with this gradient instead of a loss.",
            rich_help_panel=_TARGET,
        ),
    ] = None
    device: Annotated[
        str | None,
        Option("--device", help="Device to run on. Default: cpu.", rich_help_panel=_TARGET),
    ] = None
    mode: Annotated[
        Literal["train", "eval"] | None,
        Option("--mode", help="Mode of the model. Default: train.", rich_help_panel=_TARGET),
    ] = None
    seed: Annotated[
        int | None,
        Option("--seed", help="Random seed. Default: 0.", rich_help_panel=_TARGET),
    ] = None
    dtype: Annotated[
        str | None,
        Option(
            "--dtype",
            metavar="TYPE",
            help="Convert parameters and inputs to this dtype, such as float64 or bfloat16.",
            rich_help_panel=_TARGET,
        ),
    ] = None
    checkpoint: Annotated[
        str | None,
        Option(
            "--checkpoint", metavar="FILE", help="Load weights from FILE.", rich_help_panel=_TARGET
        ),
    ] = None
    eager: Annotated[
        bool | None,
        Option(
            "--eager/--no-eager",
            help="Disable torch.compile, or leave it enabled.",
            rich_help_panel=_TARGET,
        ),
    ] = None

    def given(self) -> Mapping[str, Value]:
        """Return the options that were given, by their configuration keys."""
        return given_in(self)


@dataclass(frozen=True, slots=True, kw_only=True)
class TrialGroup:
    """Options for the optimizer steps before and after the inspected step."""

    steps: Annotated[
        int | None,
        Option(
            "--steps",
            min=0,
            metavar="N",
            help="Run N optimizer steps on the target's batches before the inspected step.",
            rich_help_panel=_TRIAL,
        ),
    ] = None
    optimizer: Annotated[
        str | None,
        Option(
            "--optimizer",
            metavar="NAME",
            help="torch.optim optimizer to use instead of the target's, such as adamw.",
            rich_help_panel=_TRIAL,
        ),
    ] = None
    lr: Annotated[
        float | None,
        Option(
            "--lr",
            min=0.0,
            metavar="X",
            help="Learning rate for --optimizer.",
            rich_help_panel=_TRIAL,
        ),
    ] = None
    probe_steps: Annotated[
        int | None,
        Option(
            "--probe-steps",
            min=0,
            metavar="N",
            help="Try N optimizer steps after the inspected step, then restore the model. "
            "Default: 3.",
            rich_help_panel=_TRIAL,
        ),
    ] = None
    micro_batches: Annotated[
        int | None,
        Option(
            "--micro-batches",
            min=2,
            metavar="K",
            help="Split the batch into K parts, and compare the accumulated gradients with those "
            "of the whole batch.",
            rich_help_panel=_TRIAL,
        ),
    ] = None
    keep_gradients: Annotated[
        KeepMode | None,
        Option(
            "--keep-gradients",
            help="With --save, store the gradients for gradscope compare: every element, or a "
            "sketch of 4,096 numbers per parameter.",
            rich_help_panel=_OUTPUT,
        ),
    ] = None

    def given(self) -> Mapping[str, Value]:
        """Return the options that were given, by their configuration keys."""
        return given_in(self)


TensorsOption = Annotated[
    Literal["none", "top", "all"],
    Option("--tensors", help="Tensors to list.", rich_help_panel=_VIEW),
]
SortOption = Annotated[
    Literal["order", "name", "norm", "ratio", "depth"],
    Option("--sort", help="Order of the lists.", rich_help_panel=_VIEW),
]
TopOption = Annotated[
    int,
    Option(
        "--top",
        min=1,
        metavar="N",
        help="Number of largest and smallest entries to list.",
        rich_help_panel=_VIEW,
    ),
]
ModuleOption = Annotated[
    str | None,
    Option("--module", metavar="PATH", help="Show only this module.", rich_help_panel=_VIEW),
]
DepthOption = Annotated[
    int | None,
    Option(
        "--depth",
        min=0,
        metavar="N",
        help="Fold modules below this depth.",
        rich_help_panel=_VIEW,
        show_default=False,
    ),
]


@dataclass(frozen=True, slots=True, kw_only=True)
class ViewGroup:
    """Options that select what a report shows."""

    tensors: TensorsOption = "top"
    sort: SortOption = "order"
    top: TopOption = 5
    module: ModuleOption = None
    depth: DepthOption = None

    def chosen(self, *, can_save: bool = False) -> "ViewOptions":
        """Return the view options; `can_save` is whether the command has `--save`."""
        from gradscope.analysis.view import ViewOptions

        return ViewOptions(
            tensors=self.tensors,
            sort=self.sort,
            top=self.top,
            module=self.module,
            depth=self.depth,
            can_save=can_save,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class RulesGroup:
    """Options that select rules."""

    select: Annotated[
        list[str] | None,
        Option(
            "--select",
            metavar="RULE",
            help="Run only these rules: codes, prefixes, families or names, such as GS101,flow.",
            rich_help_panel=_RULES,
        ),
    ] = None
    ignore: Annotated[
        list[str] | None,
        Option("--ignore", metavar="RULE", help="Skip these rules.", rich_help_panel=_RULES),
    ] = None
    extend_select: Annotated[
        list[str] | None,
        Option(
            "--extend-select",
            metavar="RULE",
            help="Run these rules in addition to the configured ones.",
            rich_help_panel=_RULES,
        ),
    ] = None
    config: Annotated[
        Path | None,
        Option(
            "--config",
            metavar="FILE",
            help="Read \\[tool.gradscope] from FILE instead of the nearest pyproject.toml.",
            rich_help_panel=_RULES,
        ),
    ] = None


_FORMAT = Option(
    "--output-format",
    envvar="GRADSCOPE_OUTPUT_FORMAT",
    help="Report format. Default: html for .html files, otherwise full.",
    rich_help_panel=_OUTPUT,
)
OutputFormatOption = Annotated[OutputFormat | None, _FORMAT]
"""Report format; None leaves it to the file's extension, then to the configuration."""
OpenOption = Annotated[
    bool,
    Option("--open", help="Open the report in a browser, as html.", rich_help_panel=_OUTPUT),
]
OutputFileOption = Annotated[
    str,
    Option(
        "-o",
        "--output-file",
        metavar="PATH",
        help="Write the output to PATH; - for stdout.",
        rich_help_panel=_OUTPUT,
    ),
]
ReportFileOption = Annotated[
    str,
    Option(
        "-o",
        "--output-file",
        envvar="GRADSCOPE_OUTPUT_FILE",
        metavar="PATH",
        help="Write the report to PATH; - for stdout.",
        rich_help_panel=_OUTPUT,
    ),
]
SaveOption = Annotated[
    Path | None,
    Option("--save", metavar="RECORDING", help="Save the recording.", rich_help_panel=_OUTPUT),
]
SaveRunsOption = Annotated[
    Path | None,
    Option(
        "--save",
        metavar="RECORDING|FOLDER",
        help="Save the recording, or the recordings of several runs in a folder.",
        rich_help_panel=_OUTPUT,
    ),
]
ForceOption = Annotated[
    bool,
    Option("-f", "--force", help="Let --save overwrite files.", rich_help_panel=_OUTPUT),
]
QuietOption = Annotated[
    bool,
    Option("-q", "--quiet", help="Show only warnings and errors.", rich_help_panel=_OUTPUT),
]
VerboseOption = Annotated[
    bool, Option("-v", "--verbose", help="Show full tracebacks.", rich_help_panel=_OUTPUT)
]
ColorOption = Annotated[
    ColorChoice, Option("--color", help="Colour the output.", rich_help_panel=_OUTPUT)
]
