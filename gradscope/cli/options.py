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
"""Of an option as the command line gives it."""

TargetArgument = Annotated[
    str,
    Argument(
        metavar="TARGET",
        help="path/file.py[:EXPR] or package.module[:EXPR]. EXPR is a name in it, or a call with "
        "literal arguments: 'model.py:Net(hidden=64)'.",
        show_default=False,
    ),
]
FileArguments = Annotated[
    list[str] | None,
    Argument(metavar="-- ARGS", help="What the file sees as sys.argv.", show_default=False),
]


def given_in(group: object) -> dict[str, Value]:
    """Return what was given of a group, under the names that the configuration uses."""
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
    """How to load a target."""

    model: Annotated[
        str | None,
        Option("--model", metavar="EXPR", help="The model in it.", rich_help_panel=_TARGET),
    ] = None
    batch: Annotated[
        str | None,
        Option(
            "--batch",
            metavar="EXPR|FILE",
            help="The batch in it, or a .pt, .npz, .safetensors or .json file.",
            rich_help_panel=_TARGET,
        ),
    ] = None
    loss: Annotated[
        str | None,
        Option(
            "--loss",
            metavar="EXPR|NAME",
            help="The loss in it, or one of cross-entropy, mse, mean, sum-squares.",
            rich_help_panel=_TARGET,
        ),
    ] = None
    input: Annotated[
        list[str] | None,
        Option(
            "--input",
            metavar="SPEC",
            help="Random input, \\[name=]\\[dtype\\[low,high]:]sizes: 8,3,32,32 "
            "or ids=int64[0,100]:2,16. Once for each input.",
            rich_help_panel=_TARGET,
        ),
    ] = None
    grad_output: Annotated[
        str | None,
        Option(
            "--grad-output",
            metavar="ones|randn|FILE",
            help="Start backward from the output with this vector, without a loss.",
            rich_help_panel=_TARGET,
        ),
    ] = None
    device: Annotated[
        str | None,
        Option("--device", help="Where to run; cpu if not given.", rich_help_panel=_TARGET),
    ] = None
    mode: Annotated[
        Literal["train", "eval"] | None,
        Option("--mode", help="Mode of the model; train if not given.", rich_help_panel=_TARGET),
    ] = None
    seed: Annotated[
        int | None,
        Option("--seed", help="Of every random number; 0 if not given.", rich_help_panel=_TARGET),
    ] = None
    dtype: Annotated[
        str | None,
        Option(
            "--dtype",
            metavar="TYPE",
            help="Convert parameters and inputs, as to float64 or bfloat16.",
            rich_help_panel=_TARGET,
        ),
    ] = None
    checkpoint: Annotated[
        str | None,
        Option("--checkpoint", metavar="FILE", help="Weights to load.", rich_help_panel=_TARGET),
    ] = None
    eager: Annotated[
        bool | None,
        Option(
            "--eager/--no-eager",
            help="Switch torch.compile off, or leave it on.",
            rich_help_panel=_TARGET,
        ),
    ] = None

    def given(self) -> Mapping[str, Value]:
        """Return the options that were given, under their names in the configuration."""
        return given_in(self)


@dataclass(frozen=True, slots=True, kw_only=True)
class TrialGroup:
    """How a target is run before and after the step that is judged."""

    steps: Annotated[
        int | None,
        Option(
            "--steps",
            min=0,
            metavar="N",
            help="Optimizer steps on the target's batches before the step that is judged.",
            rich_help_panel=_TRIAL,
        ),
    ] = None
    optimizer: Annotated[
        str | None,
        Option(
            "--optimizer",
            metavar="NAME",
            help="Of torch.optim, as adamw: makes the steps in place of the target's.",
            rich_help_panel=_TRIAL,
        ),
    ] = None
    lr: Annotated[
        float | None,
        Option("--lr", min=0.0, metavar="X", help="Its learning rate.", rich_help_panel=_TRIAL),
    ] = None
    probe_steps: Annotated[
        int | None,
        Option(
            "--probe-steps",
            min=0,
            metavar="N",
            help="Optimizer steps to try after it on a snapshot, which is put back; 3 if not "
            "given.",
            rich_help_panel=_TRIAL,
        ),
    ] = None
    micro_batches: Annotated[
        int | None,
        Option(
            "--micro-batches",
            min=2,
            metavar="K",
            help="Divide its batch into so many parts, and compare their accumulated gradients "
            "with the whole batch's.",
            rich_help_panel=_TRIAL,
        ),
    ] = None
    keep_gradients: Annotated[
        KeepMode | None,
        Option(
            "--keep-gradients",
            help="With --save, keep the gradients of that step for gradscope compare: every "
            "element, or a sketch of 4,096 numbers a parameter.",
            rich_help_panel=_OUTPUT,
        ),
    ] = None

    def given(self) -> Mapping[str, Value]:
        """Return the options that were given, under their names in the configuration."""
        return given_in(self)


TensorsOption = Annotated[
    Literal["none", "top", "all"],
    Option("--tensors", help="Which tensors to list.", rich_help_panel=_VIEW),
]
SortOption = Annotated[
    Literal["order", "name", "norm", "ratio", "depth"],
    Option("--sort", help="How to sort the lists.", rich_help_panel=_VIEW),
]
TopOption = Annotated[
    int,
    Option(
        "--top",
        min=1,
        metavar="N",
        help="How many of the largest and smallest.",
        rich_help_panel=_VIEW,
    ),
]
ModuleOption = Annotated[
    str | None,
    Option("--module", metavar="PATH", help="Only this module.", rich_help_panel=_VIEW),
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
    """What of a report to show."""

    tensors: TensorsOption = "top"
    sort: SortOption = "order"
    top: TopOption = 5
    module: ModuleOption = None
    depth: DepthOption = None

    def chosen(self, *, can_save: bool = False) -> "ViewOptions":
        """Return what to show; `can_save` is whether the command has `--save`."""
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
    """Which rules judge."""

    select: Annotated[
        list[str] | None,
        Option(
            "--select",
            metavar="RULE",
            help="Run only these rules: GS101, GS1, flow or a name; several by commas.",
            rich_help_panel=_RULES,
        ),
    ] = None
    ignore: Annotated[
        list[str] | None,
        Option("--ignore", metavar="RULE", help="Leave these out.", rich_help_panel=_RULES),
    ] = None
    extend_select: Annotated[
        list[str] | None,
        Option(
            "--extend-select",
            metavar="RULE",
            help="Run these too, whatever the configuration says.",
            rich_help_panel=_RULES,
        ),
    ] = None
    config: Annotated[
        Path | None,
        Option(
            "--config",
            metavar="FILE",
            help="Read \\[tool.gradscope] of this file, not of the nearest pyproject.toml.",
            rich_help_panel=_RULES,
        ),
    ] = None


_FORMAT = Option(
    "--output-format",
    envvar="GRADSCOPE_OUTPUT_FORMAT",
    help="How to write the report; html for a file that ends so, else full, if not given.",
    rich_help_panel=_OUTPUT,
)
OutputFormatOption = Annotated[OutputFormat | None, _FORMAT]
"""None where the file's ending decides, and then the configuration."""
OpenOption = Annotated[
    bool,
    Option("--open", help="Show the report in a browser, as html.", rich_help_panel=_OUTPUT),
]
OutputFileOption = Annotated[
    str,
    Option(
        "-o",
        "--output-file",
        metavar="PATH",
        help="Where to write it; - is stdout.",
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
        help="Where to write the report; - is stdout.",
        rich_help_panel=_OUTPUT,
    ),
]
SaveOption = Annotated[
    Path | None,
    Option("--save", metavar="RECORDING", help="Keep the recording.", rich_help_panel=_OUTPUT),
]
SaveRunsOption = Annotated[
    Path | None,
    Option(
        "--save",
        metavar="RECORDING|FOLDER",
        help="Keep the recording, or the recordings of several runs in a folder.",
        rich_help_panel=_OUTPUT,
    ),
]
ForceOption = Annotated[
    bool,
    Option("-f", "--force", help="Let --save overwrite a file.", rich_help_panel=_OUTPUT),
]
QuietOption = Annotated[
    bool,
    Option("-q", "--quiet", help="Leave notes out, and what is fine.", rich_help_panel=_OUTPUT),
]
VerboseOption = Annotated[
    bool, Option("-v", "--verbose", help="Full tracebacks.", rich_help_panel=_OUTPUT)
]
ColorOption = Annotated[ColorChoice, Option("--color", help="Colour.", rich_help_panel=_OUTPUT)]
