"""`gradscope export`."""

import gc
import io
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from gradscope.cli import options
from gradscope.cli.errors import show_note
from gradscope.cli.option_groups import with_groups
from gradscope.cli.output import pipe_may_close, set_verbosity
from gradscope.cli.running import judged, settings_of
from gradscope.errors import GradscopeError
from gradscope.options.declaration import Argument, Option

if TYPE_CHECKING:
    from gradscope.export.plan import ExportPlan

RecordingArgument = Annotated[
    Path,
    Argument(metavar="RECORDING", help="Recording written by --save.", show_default=False),
]
PathArgument = Annotated[
    str | None,
    Argument(
        metavar="FOLDER|FILE",
        help="Where to write, same as -o: --to tensorboard logs.",
        show_default=False,
    ),
]
FormOption = Annotated[
    Literal["tensorboard", "csv", "parquet", "jsonl"],
    Option("--to", help="Output format.", panel="Output"),
]
OutputOption = Annotated[
    str | None,
    Option(
        "-o",
        "--output",
        metavar="FOLDER|FILE",
        help="Write to a folder, or with --table to a file; - for stdout.",
        panel="Output",
        show_default=False,
    ),
]
TableOption = Annotated[
    Literal["steps", "parameters", "tensors", "modules", "events", "findings"] | None,
    Option(
        "--table",
        help="Export only this table. Default: every table, one file each.",
        panel="Output",
        show_default=False,
    ),
]
ForceOption = Annotated[bool, Option("-f", "--force", help="Overwrite files.", panel="Output")]


@with_groups
def export(
    recording: RecordingArgument,
    to: FormOption,
    rules: options.RuleOptions,
    path: PathArgument = None,
    output: OutputOption = None,
    table: TableOption = None,
    force: ForceOption = False,
    quiet: options.QuietOption = False,
) -> None:
    """Write a recording for other tools: TensorBoard, CSV, Parquet or JSON Lines."""
    set_verbosity(quiet=quiet, verbose=False)
    # Deferred: --help does not need them.
    from gradscope.analysis.report import Report
    from gradscope.export.plan import planned_export
    from gradscope.recording.store import load_recording

    if path is not None and output is not None:
        raise GradscopeError(
            f"{path!r} and -o {output!r} both name the output", help="remove one of them"
        )
    plan = planned_export(to, path if output is None else output, table)
    plan.check(force=force, inputs=(recording,))
    settings = settings_of(rules)
    loaded = load_recording(recording)
    # Garbage collections would visit the records, a million for a long run.
    gc.freeze()
    report = judged(loaded, settings) if plan.needs_findings else Report.from_recording(loaded)
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")
    with pipe_may_close(sys.stdout):
        plan.write(report, sys.stdout)
    _tell(plan)


def _tell(plan: "ExportPlan") -> None:
    if plan.form == "tensorboard":
        show_note(f"wrote {plan.files[0]}; view it with tensorboard --logdir {plan.folder}")
    elif plan.folder is not None:
        show_note(f"wrote {len(plan.files)} tables into {plan.folder}")
    elif plan.files:
        show_note(f"wrote {plan.files[0]}")
