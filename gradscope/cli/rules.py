"""The rules that a command runs, as its options say."""

from typing import TYPE_CHECKING

from gradscope.options.declaration import Given, field_values
from gradscope.rules.settings import NormLimit, Settings

if TYPE_CHECKING:
    from gradscope.analysis.report import Report
    from gradscope.recording.records import Recording


def settings_of(rules: Given, configured: Settings | None = None) -> Settings:
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
    from gradscope.analysis.report import Report
    from gradscope.rules.engine import judge

    return Report.from_recording(recording, judge(recording, settings))
