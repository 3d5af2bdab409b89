"""`gradscope inspect`."""

from gradscope.cli import options
from gradscope.cli.arguments import check_file_arguments, given_arguments
from gradscope.cli.option_groups import with_groups
from gradscope.cli.output import (
    check_destinations,
    files_of_target,
    save_recording,
    set_verbosity,
    write_report,
)
from gradscope.cli.rules import judged, settings_of
from gradscope.cli.running import exit_if_broken, kept_as_saved, planned_target, record_planned
from gradscope.cli.streams import reserved_stdout
from gradscope.cli.wanted_output import wanted_output


@with_groups
def inspect(  # noqa: PLR0913 - the signature is the list of options
    target: options.TargetArgument,
    loading: options.TargetGroup,
    trial: options.TrialGroup,
    view: options.ViewGroup,
    rules: options.RulesGroup,
    args: options.FileArguments = None,
    output_format: options.OutputFormatOption = None,
    output_file: options.ReportFileOption = "-",
    open_page: options.OpenOption = False,
    save: options.SaveOption = None,
    force: options.ForceOption = False,
    quiet: options.QuietOption = False,
    verbose: options.VerboseOption = False,
    color: options.ColorOption = "auto",
) -> None:
    """Run one forward and backward, and report every gradient and the line that produced it.

    gradscope imports and runs the target's code, as pytest does.
    """
    set_verbosity(quiet=quiet, verbose=verbose)
    check_file_arguments(args)
    from gradscope.config import read_configuration

    configuration = read_configuration(rules.config)
    settings = settings_of(rules, configuration.settings)
    planned = planned_target(
        target, configuration, {**loading.given(), **trial.given(), **given_arguments(args)}
    )
    planned = kept_as_saved(planned, trial.keep_gradients, is_saved=save is not None)
    wanted = wanted_output(output_format, output_file, is_opened=open_page, subject=target)
    destinations = check_destinations(
        wanted.file, save, force=force, inputs=files_of_target(planned)
    )
    with reserved_stdout() as stdout:
        report = judged(record_planned(planned), settings)
        if destinations.recording is not None:
            save_recording(report, destinations.recording, force=force)
        write_report(
            report,
            wanted.form,
            view.chosen(can_save=True),
            destination=destinations.report,
            stdout=stdout,
            color=color,
        )
    wanted.open(destinations.report)
    exit_if_broken(report)
