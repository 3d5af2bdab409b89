"""The rules that a command runs, as its options say."""

from typing import TYPE_CHECKING

from gradscope.rules.settings import Settings

if TYPE_CHECKING:
    from gradscope.recording.records import Recording
    from gradscope.report.model import Report


def settings_of(
    select: list[str] | None, ignore: list[str] | None, extend_select: list[str] | None
) -> Settings:
    """Return the settings that the options make.

    Raises:
        GradscopeError: An option names no rule.
    """
    from gradscope.rules.engine import check_settings

    settings = Settings(
        select=_selectors(select),
        ignore=_selectors(ignore),
        extend_select=_selectors(extend_select),
    )
    check_settings(settings)
    return settings


def judged(recording: "Recording", settings: Settings) -> "Report":
    """Return the report of a recording, judged by the rules."""
    from gradscope.report.model import Report
    from gradscope.rules.engine import judge

    return Report.from_recording(recording, judge(recording, settings))


def _selectors(given: list[str] | None) -> tuple[str, ...]:
    parts = (part.strip() for text in given or () for part in text.split(","))
    return tuple(part for part in parts if part)
