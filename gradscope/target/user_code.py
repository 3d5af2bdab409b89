"""Opens the files that the user names, and turns exceptions of the user's code into errors."""

from collections.abc import Callable, Iterable
from pathlib import Path
from types import TracebackType

from gradscope.errors import GradscopeError, UserCodeError
from gradscope.frozen import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Advice:
    """Why user code failed and what to try, as far as that is known."""

    cause: str | None = None
    help: str | None = None


class UserCode:
    """Context for code of the user's. Its exceptions become `UserCodeError`s.

    It is a context manager and not an `except` clause, because users can raise anything,
    `SystemExit` included. Ctrl-C passes through.

    Args:
        what: The activity, as `while importing 'model.py'`; the exception is added to it.
        explain: Returns advice on the exception.
    """

    def __init__(self, what: str, explain: Callable[[BaseException], Advice] | None = None) -> None:
        self._what = what
        self._explain = explain

    def __enter__(self) -> None:
        return None

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        # Nested contexts: the innermost one has explained the error already.
        if error is None or isinstance(error, KeyboardInterrupt | GradscopeError):
            return
        advice = self._explain(error) if self._explain is not None else Advice()
        raise UserCodeError(
            f"{self._what}: {summary(error)}", cause=advice.cause, help=advice.help
        ) from error


def summary(error: BaseException) -> str:
    """Return the exception in one line: its type and the first line of its message."""
    if isinstance(error, SystemExit):
        return f"it called sys.exit({'' if error.code is None else repr(error.code)})"
    lines = str(error).strip().splitlines()
    name = type(error).__name__
    return f"{name}: {lines[0]}" if lines else name


def nearest(name: str, choices: Iterable[str], *, likeness: float = 0.6) -> str | None:
    """Return the choice most similar to the name; None if none is similar enough (1 is equal)."""
    # Deferred: only errors need it.
    from difflib import get_close_matches

    found = get_close_matches(name, list(choices), n=1, cutoff=likeness)
    return found[0] if found else None


def did_you_mean(name: str, choices: Iterable[str]) -> str | None:
    """Return a help line with the choice most similar to the name; None if none is close."""
    found = nearest(name, choices)
    return None if found is None else f"did you mean {found!r}?"


def exists(path: Path) -> bool:
    """Return whether a file or directory exists; false also for invalid names."""
    try:
        return path.exists()
    except OSError:
        return False


def require_file(text: str, suffix: str | None = None) -> Path:
    """Return the path of a readable file.

    Args:
        text: The path as the user wrote it.
        suffix: Suffix of alternatives to suggest; None for any.

    Raises:
        GradscopeError: The file does not exist, or is unreadable.
    """
    path = Path(text)
    try:
        path.open("rb").close()
    except FileNotFoundError:
        raise GradscopeError(
            f"cannot open {text!r}", cause="there is no such file", help=_similar(path, suffix)
        ) from None
    except (OSError, ValueError) as error:
        # Path raises ValueError for a null byte in the name.
        cause = error.strerror if isinstance(error, OSError) else str(error)
        raise GradscopeError(f"cannot open {text!r}", cause=cause) from None
    return path


def _similar(path: Path, suffix: str | None) -> str | None:
    folder = path.parent
    if not folder.is_dir():
        return f"there is no directory {str(folder)!r}"
    names = [entry.name for entry in folder.iterdir() if suffix in (None, entry.suffix)]
    # Common suffixes would make every two names alike.
    likely = [name for name in names if nearest(path.stem, [Path(name).stem])]
    found = nearest(path.name, likely, likeness=0.0)
    return None if found is None else f"did you mean {str(folder / found)!r}?"
