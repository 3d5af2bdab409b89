"""The rules that a command runs, as its options say."""

from typing import TYPE_CHECKING

from gradscope.rules.settings import Settings

if TYPE_CHECKING:
    from gradscope.cli.options import RulesGroup
    from gradscope.recording.records import Recording
    from gradscope.report.model import Report


def settings_of(rules: "RulesGroup") -> Settings:
    """Return the settings that the configuration and the options make; the options win.

    Raises:
        GradscopeError: An option names no rule, or the configuration is wrong.
    """
    from gradscope.configuration import configured_settings, with_options
    from gradscope.rules.selection import parsed_selectors

    return with_options(
        configured_settings(rules.config),
        select=parsed_selectors(rules.select or ()),
        ignore=parsed_selectors(rules.ignore or ()),
        extend_select=parsed_selectors(rules.extend_select or ()),
    )


def judged(recording: "Recording", settings: Settings) -> "Report":
    """Return the report of a recording, judged by the rules."""
    from gradscope.report.model import Report
    from gradscope.rules.engine import judge

    return Report.from_recording(recording, judge(recording, settings))
