"""The rules that a command runs, as its options say."""

from typing import TYPE_CHECKING

from gradscope.rules.settings import Settings

if TYPE_CHECKING:
    from pathlib import Path

    from gradscope.recording.records import Recording
    from gradscope.report.model import Report


def settings_of(
    config: "Path | None",
    select: list[str] | None,
    ignore: list[str] | None,
    extend_select: list[str] | None,
) -> Settings:
    """Return the settings that the configuration and the options make; the options win.

    Raises:
        GradscopeError: An option names no rule, or the configuration is wrong.
    """
    from gradscope.configuration import configured_settings, with_options
    from gradscope.rules.selection import parsed_selectors

    return with_options(
        configured_settings(config),
        select=parsed_selectors(select or ()),
        ignore=parsed_selectors(ignore or ()),
        extend_select=parsed_selectors(extend_select or ()),
    )


def judged(recording: "Recording", settings: Settings) -> "Report":
    """Return the report of a recording, judged by the rules."""
    from gradscope.report.model import Report
    from gradscope.rules.engine import judge

    return Report.from_recording(recording, judge(recording, settings))
