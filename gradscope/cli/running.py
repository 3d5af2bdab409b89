"""Plans, runs and records a target, and judges a recording, for all commands."""

import gc
import shlex
import sys
import warnings
from collections.abc import Sequence
from contextlib import chdir
from dataclasses import replace
from typing import TYPE_CHECKING

from gradscope.cli.errors import show_error, show_note
from gradscope.errors import ExitCode, GradscopeError
from gradscope.garbage import collect_as_usual
from gradscope.options.declaration import Overrides, field_values
from gradscope.progress import tell_stage
from gradscope.rules.settings import NormLimit, Settings

if TYPE_CHECKING:
    from gradscope.analysis.report import Report
    from gradscope.check.options import PlannedTarget
    from gradscope.config import Configuration
    from gradscope.recording.records import Recording
    from gradscope.target.options import TargetOptions, Trial


def record_target(
    spec: str,
    chosen: "TargetOptions",
    trial: "Trial",
    *,
    command: str,
) -> "Recording":
    """Load a target, print the decisions made for the user, run it, and return the recording."""
    from gradscope.target.discovery.source_check import check_source
    from gradscope.target.notation import parse_target

    check_source(parse_target(spec))  # reports a wrong name before torch is imported
    tell_stage("importing torch")
    _import_torch()
    tell_stage(f"loading {spec}")
    # Deferred: they import torch.
    from gradscope.capture.source.definitions import watch_definitions
    from gradscope.session.inspection import record
    from gradscope.target.loading import load_target

    with watch_definitions() as definitions:
        target = load_target(spec, chosen)
    for note in target.notes:
        show_note(note)
    return record(
        target,
        trial=trial,
        eager=chosen.eager,
        command=command,
        definitions=definitions,
        tell=show_error,
    )


def _import_torch() -> None:
    """Import torch; it takes more than a second, so recordings and --help go without it."""
    collect_as_usual()
    is_first = "torch" not in sys.modules
    if is_first:
        gc.disable()
    with warnings.catch_warnings():
        # torch warns without numpy, which it does not need here.
        warnings.filterwarnings("ignore", message="Failed to initialize NumPy")
        import torch  # noqa: F401
    if is_first:
        # Garbage collections would visit torch's objects again and again, which takes a second.
        gc.freeze()
        gc.enable()


def planned_target(
    target: str, configuration: "Configuration", overrides: Overrides
) -> "PlannedTarget":
    """Return how to run one target, as the configuration and the options say.

    A missing batch, loss or constructor argument is guessed, and the report says so.

    Args:
        target: Target as written, or a name in the configuration.
        configuration: The user's configuration.
        overrides: The options that were given, by the configuration's keys.
    """
    from gradscope.config import plan_targets

    (planned,) = plan_targets(configuration, (target,), overrides)
    return replace(planned, options=replace(planned.options, allow_guesses=True))


def kept_as_saved(planned: "PlannedTarget", given: Overrides, *, is_saved: bool) -> "PlannedTarget":
    """Return how to run a target, without stored gradients unless its recording is saved.

    Args:
        planned: The target, as the configuration and the options say.
        given: The given options, by the configuration's keys.
        is_saved: Whether its recording is saved.

    Raises:
        GradscopeError: An option asks for stored gradients, but no recording is saved.
    """
    if is_saved:
        return planned
    asked = given.get("keep-gradients", "none")
    if asked != "none":
        raise GradscopeError(
            f"--keep-gradients {asked} stores gradients in a recording, but none is saved",
            help="add --save RECORDING",
        )
    return replace(planned, trial=replace(planned.trial, keep_gradients="none"))


def record_planned(planned: "PlannedTarget") -> "Recording":
    """Run a planned target in this process, in its folder, and return the recording."""
    with chdir(planned.folder):
        return record_target(planned.spec, planned.options, planned.trial, command=typed_command())


def typed_command() -> str:
    """Return the command line as the user typed it, for the record."""
    return shlex.join(["gradscope", *sys.argv[1:]])


def exit_if_broken(report: "Report") -> None:
    """End the command with code 2 if autograd ended the step; the report says why.

    Raises:
        SystemExit: Autograd ended the step.
    """
    from gradscope.analysis.recording_index import ended_by

    if ended_by(report.recording) is not None:
        sys.exit(ExitCode.CANNOT_JUDGE)


def settings_of(rules: Overrides, configured: Settings | None = None) -> Settings:
    """Return the settings that the configuration and the options make; the options win.

    Args:
        rules: The given options that select rules or limit the gradient norm.
        configured: The settings of the configuration, where it has been read already.

    Raises:
        GradscopeError: An option names no rule, or the configuration is wrong.
    """
    if configured is None:
        from gradscope.cli.options import ConfigurationFile
        from gradscope.config import configured_settings

        configured = configured_settings(ConfigurationFile.of(rules))
    selected, limits = field_values(Settings, rules), field_values(NormLimit, rules)
    if not selected and not limits:  # then no rule needs to be imported
        return configured
    from gradscope.config import with_options
    from gradscope.rules.selection import parsed_selectors

    return with_options(
        configured,
        **{name: parsed_selectors(texts) for name, texts in selected.items()},  # type: ignore[arg-type]
        max_grad_norm=limits.get("maximum"),  # type: ignore[arg-type]
        min_grad_norm=limits.get("minimum"),  # type: ignore[arg-type]
    )


def judged(recording: "Recording", settings: Settings) -> "Report":
    """Return the report of a recording, judged by the rules."""
    tell_stage("applying the rules")
    from gradscope.analysis.report import Report
    from gradscope.rules.engine import judge

    return Report.from_recording(recording, judge(recording, settings))


def judged_job(recordings: "Sequence[Recording]", settings: Settings) -> "Report":
    """Return the report of a job, judged by the rules; of a single recording its own."""
    if len(recordings) == 1:
        return judged(recordings[0], settings)
    tell_stage(f"applying the rules to {len(recordings)} ranks")
    from gradscope.analysis.report import Report
    from gradscope.rules.engine import judge_job

    return Report.of_job(recordings, judge_job(recordings, settings))
