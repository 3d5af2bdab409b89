"""The rules that a command runs, as its options say."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from gradscope.rules.settings import Settings

if TYPE_CHECKING:
    from gradscope.analysis.report import Report
    from gradscope.cli.options import RulesGroup
    from gradscope.recording.records import Recording


def settings_of(
    rules: "RulesGroup",
    configured: Settings | None = None,
    *,
    max_grad_norm: float | None = None,
    min_grad_norm: float | None = None,
) -> Settings:
    """Return the settings that the configuration and the options make; the options win.

    Args:
        rules: The options.
        configured: The settings of the configuration, where it has been read already.
        max_grad_norm: Above which a global gradient norm is a finding.
        min_grad_norm: Below which it is one.

    Raises:
        GradscopeError: An option names no rule, or the configuration is wrong.
    """
    if configured is None:
        from gradscope.config import configured_settings

        configured = configured_settings(rules.config)
    given = (rules.select, rules.ignore, rules.extend_select, max_grad_norm, min_grad_norm)
    if all(one is None for one in given):  # for which not all rules need be imported
        return configured
    from gradscope.config import with_options
    from gradscope.rules.selection import parsed_selectors

    return with_options(
        configured,
        select=parsed_selectors(rules.select or ()),
        ignore=parsed_selectors(rules.ignore or ()),
        extend_select=parsed_selectors(rules.extend_select or ()),
        max_grad_norm=max_grad_norm,
        min_grad_norm=min_grad_norm,
    )


def judged(recording: "Recording", settings: Settings) -> "Report":
    """Return the report of a recording, judged by the rules."""
    from gradscope.analysis.report import Report
    from gradscope.rules.engine import judge

    return Report.from_recording(recording, judge(recording, settings))


def judged_job(recordings: "Sequence[Recording]", settings: Settings) -> "Report":
    """Return the report of a job, judged by the rules; of a single recording its own."""
    if len(recordings) == 1:
        return judged(recordings[0], settings)
    from gradscope.analysis.report import Report
    from gradscope.rules.job_judging import judge_job

    return Report.from_recording(recordings[0], judge_job(recordings, settings), recordings)
