"""`gradscope export`."""

import gc
import io
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from gradscope.cli import options
from gradscope.cli.errors import show_note
from gradscope.cli.options import with_groups
from gradscope.cli.output import pipe_may_close, set_verbosity
from gradscope.cli.rank_recordings import (
    checked_ranks,
    is_large,
    read_in_full,
    read_jobs,
    recording_paths,
)
from gradscope.cli.running import judged_job, settings_of
from gradscope.errors import GradscopeError
from gradscope.options.declaration import Argument, Option

if TYPE_CHECKING:
    from gradscope.export.plan import ExportPlan

RecordingsArgument = Annotated[
    list[str],
    Argument(
        metavar="RECORDING... [FOLDER|FILE]",
        help="Recording written by --save; the ranks of a job, their folder or their common name. "
        "A last argument that is no recording says where to write, same as -o: --to tensorboard "
        "logs.",
        show_default=False,
    ),
]
FormOption = Annotated[
    Literal["tensorboard", "csv", "parquet", "jsonl", "model-explorer"],
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
    Literal["steps", "parameters", "tensors", "modules", "events", "ranks", "findings"] | None,
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
    given: RecordingsArgument,
    to: FormOption,
    rules: options.RuleOptions,
    output: OutputOption = None,
    table: TableOption = None,
    force: ForceOption = False,
    quiet: options.NoProgressOption = False,
) -> None:
    """Write a recording for other tools: TensorBoard, Model Explorer, CSV, Parquet, JSON Lines."""
    set_verbosity(quiet=quiet, verbose=False)
    # Deferred: --help does not need them.
    from gradscope.analysis.report import Report
    from gradscope.export.plan import planned_export
    from gradscope.export.table import Source
    from gradscope.recording.streaming import RunInFile

    recordings, path = _divided(given)
    if path is not None and output is not None:
        raise GradscopeError(
            f"{path!r} and -o {output!r} both name the output", help="remove one of them"
        )
    plan = planned_export(to, path if output is None else output, table)
    paths = tuple(recording_paths(recordings))
    plan.check(force=force, inputs=paths)
    settings = settings_of(rules)
    ranks = checked_ranks(paths) if len(paths) > 1 else ()

    def load() -> Report:
        (job,) = read_jobs(ranks or paths)
        loaded = read_in_full(job).recordings
        # Garbage collections would visit the records, a million for a long run.
        gc.freeze()
        return judged_job(loaded, settings) if plan.needs_findings else Report.of_job(loaded)

    first = (ranks or paths)[0]
    run = RunInFile.of(first) if not ranks or is_large(ranks) else None
    source = Source(run=run, load=load, ranks=ranks)
    # Names of files may hold surrogates, which no encoding can write.
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")
    with pipe_may_close(sys.stdout):
        plan.write(source, sys.stdout)
    _tell(plan)


def _divided(given: "list[str]") -> tuple[list[Path], str | None]:
    """Return the recordings, and where to write: a last argument that names no recording.

    Raises:
        GradscopeError: Another argument names no recording.
    """
    first, *others = given
    names = [first, *filter(options.is_recording, others)]
    paths = [one for one in others if not options.is_recording(one)]
    if len(paths) > 1:
        raise GradscopeError(
            f"{paths[0]!r} and {paths[1]!r} both name the output", help="remove one of them"
        )
    return [Path(name) for name in names], next(iter(paths), None)


def _tell(plan: "ExportPlan") -> None:
    if plan.form == "tensorboard":
        show_note(f"wrote {plan.files[0]}; view it with tensorboard --logdir {plan.folder}")
    elif plan.form == "model-explorer":
        graph, norms = plan.files
        show_note(
            f"wrote {graph} and {norms}; view them with"
            f" model-explorer {graph} --node_data_paths {norms}"
        )
    elif plan.folder is not None:
        show_note(f"wrote {len(plan.files)} tables into {plan.folder}")
    elif plan.files:
        show_note(f"wrote {plan.files[0]}")
