"""How a run ended, in words."""

from dataclasses import dataclass

from gradscope.analysis.paths import shown_path
from gradscope.recording.run_ending import RunEnding

_INCOMPLETE = "run incomplete"


@dataclass(frozen=True, slots=True, kw_only=True)
class EndingText:
    """What is said of an end that is not the usual one."""

    title: str
    """As `ended by RuntimeError`."""
    details: str
    """What it said, and where; may be empty."""
    is_trouble: bool
    """Whether it was not asked for."""

    @property
    def line(self) -> str:
        """Both together."""
        return f"{self.title}: {self.details}" if self.details else self.title


def ending_text(ending: RunEnding | None, root: str, *, is_complete: bool) -> EndingText | None:
    """Return what to say of how a run ended; None where it came to its end, or that is not known.

    Args:
        ending: As it was recorded.
        root: The folder to which paths are shown.
        is_complete: Whether the recording was finished.
    """
    if ending is None:
        why = "the process was killed, or is still running; this is what it recorded"
        return None if is_complete else _lost(why)
    place = f"{shown_path(ending.file, root)}:{ending.line}" if ending.file else ""
    match ending.kind:
        case "raised":
            details = ": ".join(text for text in (place, ending.message) if text)
            return _ended_by(ending.exception, details)
        case "interrupted":
            return _ended_by("Ctrl-C", place)
        case "exited" if ending.code:
            return _ended_by(f"sys.exit({ending.code})", ending.message)
        case "stopped":
            return _ended_by(ending.message, "", is_trouble=False)
        case "limited":
            details = "the script went on"
            return EndingText(
                title=f"recorded up to {ending.message}", details=details, is_trouble=False
            )
        case "lost":
            return _lost(f"{ending.message}; the script went on")
    return None


def _ended_by(what: str, details: str, *, is_trouble: bool = True) -> EndingText:
    return EndingText(title=f"ended by {what}", details=details, is_trouble=is_trouble)


def _lost(why: str) -> EndingText:
    return EndingText(title=_INCOMPLETE, details=why, is_trouble=True)
