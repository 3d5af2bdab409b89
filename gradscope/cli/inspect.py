"""`gradscope inspect`."""

from dataclasses import replace

from gradscope.analysis.view import ViewOptions
from gradscope.cli import options
from gradscope.cli.console import reserved_stdout
from gradscope.cli.errors import write_line
from gradscope.cli.options import check_file_arguments, given_arguments, with_groups
from gradscope.cli.output import (
    check_destinations,
    files_of_target,
    save_recording,
    set_verbosity,
    wanted_output,
    write_report,
)
from gradscope.cli.running import (
    exit_if_broken,
    judged,
    kept_as_saved,
    planned_target,
    record_planned,
    settings_of,
    typed_command,
)
from gradscope.fixes.options import FixOptions
from gradscope.recording.finding import Finding


@with_groups
def inspect(
    *,
    target: options.TargetArgument,
    args: options.FileArguments = None,
    trial: options.TrialOptions,
    view: ViewOptions,
    rules: options.RuleOptions,
    fixes: FixOptions,
    output: options.TargetOutput,
) -> None:
    """Run one forward and backward, and report every gradient and the line that produced it.

    gradscope imports and runs the target's code, as pytest does.
    """
    set_verbosity(quiet=output.quiet, verbose=output.verbose)
    check_file_arguments(args)
    fixes = fixes.usable(write_line)
    from gradscope.config import read_configuration

    configuration = read_configuration(options.ConfigurationFile.of(rules))
    settings = settings_of(rules, configuration.settings)
    planned = planned_target(target, configuration, {**trial, **given_arguments(args)})
    planned = kept_as_saved(planned, trial, is_saved=output.save is not None)
    wanted = wanted_output(
        output.output_format, output.output_file, is_opened=output.open_page, subject=target
    )
    destinations = check_destinations(
        wanted.file, output.save, force=output.force, inputs=files_of_target(planned)
    )
    with reserved_stdout() as stdout:
        report = judged(record_planned(planned), settings)
        hidden: tuple[Finding, ...] = ()
        if fixes.is_wanted:
            from gradscope.cli.fixing import Trial, fixed, write_fixes  # needs libcst

            again = Trial(planned=planned, settings=settings, command=typed_command())
            report, hidden = fixed(report, again, fixes)
        if destinations.recording is not None:
            save_recording(report, destinations.recording, force=output.force)
        if fixes.diff and wanted.form == "full":
            shown = [(one, report.target.root) for one in report.findings]
            write_fixes(shown, hidden, destinations.report, stdout, output.color)
        else:
            write_report(
                report,
                wanted.form,
                replace(view, can_save=True),
                destination=destinations.report,
                stdout=stdout,
                color=output.color,
                is_brief=output.quiet,
            )
    wanted.open(destinations.report)
    exit_if_broken(report)
