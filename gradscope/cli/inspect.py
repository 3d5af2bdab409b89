"""`gradscope inspect`."""

import shlex
import sys

from gradscope.cli import options
from gradscope.cli.option_groups import with_groups
from gradscope.cli.output import (
    check_destinations,
    files_of_target,
    save_recording,
    set_verbosity,
    write_report,
)
from gradscope.cli.rules import judged, settings_of
from gradscope.cli.running import exit_if_broken, record_target, typed_command
from gradscope.cli.streams import reserved_stdout
from gradscope.errors import GradscopeError


@with_groups
def inspect(  # noqa: PLR0913 - the signature is the list of options
    target: options.TargetArgument,
    loading: options.TargetGroup,
    trial: options.TrialGroup,
    view: options.ViewGroup,
    rules: options.RulesGroup,
    args: options.FileArguments = None,
    output_format: options.OutputFormatOption = "full",
    output_file: options.ReportFileOption = "-",
    save: options.SaveOption = None,
    force: options.ForceOption = False,
    quiet: options.QuietOption = False,
    verbose: options.VerboseOption = False,
    color: options.ColorOption = "auto",
) -> None:
    """Run one forward and backward, and report every gradient, where it arose and in which line.

    gradscope imports and runs the target's code, as pytest does.
    """
    set_verbosity(quiet=quiet, verbose=verbose)
    check_file_arguments(args)
    destinations = check_destinations(
        output_file, save, force=force, inputs=files_of_target(target)
    )
    settings = settings_of(rules)
    with reserved_stdout() as stdout:
        recording = record_target(
            target, loading.chosen(args), trial.chosen(), command=typed_command()
        )
        report = judged(recording, settings)
        if destinations.recording is not None:
            save_recording(report, destinations.recording, force=force)
        write_report(
            report,
            output_format,
            view.chosen(can_save=True),
            destination=destinations.report,
            stdout=stdout,
            color=color,
        )
    exit_if_broken(report)


def check_file_arguments(args: list[str] | None) -> None:
    """Make sure that what follows TARGET was meant for the file.

    Raises:
        GradscopeError: There is no `--` before it.
    """
    if args and "--" not in sys.argv:
        raise GradscopeError(
            f"one TARGET at a time: {args[0]!r} is one too many",
            help=f"arguments for the target's file go after --: -- {shlex.join(args)}",
        )
