"""The options that several commands share, as types for their signatures."""

from pathlib import Path
from typing import Annotated, Literal

import typer

from gradscope.cli.console import ColorChoice

_TARGET = "Target"
_VIEW = "Report"
_OUTPUT = "Output"
_RULES = "Rules"

TargetArgument = Annotated[
    str,
    typer.Argument(
        metavar="TARGET",
        help="path/file.py[:EXPR] or package.module[:EXPR]. EXPR is a name in it, or a call with "
        "literal arguments: 'model.py:Net(hidden=64)'.",
        show_default=False,
    ),
]
FileArguments = Annotated[
    list[str] | None,
    typer.Argument(metavar="-- ARGS", help="What the file sees as sys.argv.", show_default=False),
]
ModelOption = Annotated[
    str | None,
    typer.Option("--model", metavar="EXPR", help="The model in it.", rich_help_panel=_TARGET),
]
BatchOption = Annotated[
    str | None,
    typer.Option(
        "--batch",
        metavar="EXPR|FILE",
        help="The batch in it, or a .pt, .npz, .safetensors or .json file.",
        rich_help_panel=_TARGET,
    ),
]
LossOption = Annotated[
    str | None,
    typer.Option(
        "--loss",
        metavar="EXPR|NAME",
        help="The loss in it, or one of cross-entropy, mse, mean, sum-squares.",
        rich_help_panel=_TARGET,
    ),
]
InputOption = Annotated[
    list[str] | None,
    typer.Option(
        "--input",
        metavar="SPEC",
        help="Random input, \\[name=]\\[dtype\\[low,high]:]sizes: 8,3,32,32 "
        "or ids=int64[0,100]:2,16. Once for each input.",
        rich_help_panel=_TARGET,
    ),
]
GradOutputOption = Annotated[
    str | None,
    typer.Option(
        "--grad-output",
        metavar="ones|randn|FILE",
        help="Start backward from the output with this vector, without a loss.",
        rich_help_panel=_TARGET,
    ),
]
DeviceOption = Annotated[
    str, typer.Option("--device", help="Where to run.", rich_help_panel=_TARGET)
]
ModeOption = Annotated[
    Literal["train", "eval"],
    typer.Option("--mode", help="Mode of the model.", rich_help_panel=_TARGET),
]
SeedOption = Annotated[
    int, typer.Option("--seed", help="Of every random number.", rich_help_panel=_TARGET)
]
DtypeOption = Annotated[
    str | None,
    typer.Option(
        "--dtype",
        metavar="TYPE",
        help="Convert parameters and inputs, as to float64 or bfloat16.",
        rich_help_panel=_TARGET,
    ),
]
CheckpointOption = Annotated[
    str | None,
    typer.Option("--checkpoint", metavar="FILE", help="Weights to load.", rich_help_panel=_TARGET),
]
EagerOption = Annotated[
    bool,
    typer.Option("--eager", help="Switch torch.compile off.", rich_help_panel=_TARGET),
]
ProbeStepsOption = Annotated[
    int,
    typer.Option(
        "--probe-steps",
        min=0,
        metavar="N",
        help="Optimizer steps to try on a snapshot, which is put back.",
        rich_help_panel=_TARGET,
    ),
]
TensorsOption = Annotated[
    Literal["none", "top", "all"],
    typer.Option("--tensors", help="Which tensors to list.", rich_help_panel=_VIEW),
]
SortOption = Annotated[
    Literal["order", "name", "norm", "ratio", "depth"],
    typer.Option("--sort", help="How to sort the lists.", rich_help_panel=_VIEW),
]
TopOption = Annotated[
    int,
    typer.Option(
        "--top",
        min=1,
        metavar="N",
        help="How many of the largest and smallest.",
        rich_help_panel=_VIEW,
    ),
]
OutputFormatOption = Annotated[
    Literal["full", "concise", "json", "jsonl", "markdown"],
    typer.Option(
        "--output-format",
        envvar="GRADSCOPE_OUTPUT_FORMAT",
        help="How to write the report.",
        rich_help_panel=_OUTPUT,
    ),
]
OutputFileOption = Annotated[
    str,
    typer.Option(
        "-o",
        "--output-file",
        metavar="PATH",
        help="Where to write the report; - is stdout.",
        rich_help_panel=_OUTPUT,
    ),
]
SaveOption = Annotated[
    Path | None,
    typer.Option(
        "--save", metavar="RECORDING", help="Keep the recording.", rich_help_panel=_OUTPUT
    ),
]
ForceOption = Annotated[
    bool,
    typer.Option("-f", "--force", help="Let --save overwrite a file.", rich_help_panel=_OUTPUT),
]
QuietOption = Annotated[
    bool, typer.Option("-q", "--quiet", help="Say nothing but errors.", rich_help_panel=_OUTPUT)
]
VerboseOption = Annotated[
    bool, typer.Option("-v", "--verbose", help="Full tracebacks.", rich_help_panel=_OUTPUT)
]
ColorOption = Annotated[
    ColorChoice, typer.Option("--color", help="Colour.", rich_help_panel=_OUTPUT)
]
ModuleOption = Annotated[
    str | None,
    typer.Option("--module", metavar="PATH", help="Only this module.", rich_help_panel="Report"),
]
DepthOption = Annotated[
    int | None,
    typer.Option(
        "--depth",
        min=0,
        metavar="N",
        help="Fold modules below this depth.",
        rich_help_panel="Report",
        show_default=False,
    ),
]
ConfigOption = Annotated[
    Path | None,
    typer.Option(
        "--config",
        metavar="FILE",
        help="Read \\[tool.gradscope] of this file, not of the nearest pyproject.toml.",
        rich_help_panel=_RULES,
    ),
]
SelectOption = Annotated[
    list[str] | None,
    typer.Option(
        "--select",
        metavar="RULE",
        help="Run only these rules: GS101, GS1, flow or a name; several by commas.",
        rich_help_panel=_RULES,
    ),
]
IgnoreOption = Annotated[
    list[str] | None,
    typer.Option("--ignore", metavar="RULE", help="Leave these out.", rich_help_panel=_RULES),
]
ExtendSelectOption = Annotated[
    list[str] | None,
    typer.Option(
        "--extend-select",
        metavar="RULE",
        help="Run these too, whatever the configuration says.",
        rich_help_panel=_RULES,
    ),
]
