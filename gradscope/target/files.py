"""Opens the files that the user names, and explains wrong names."""

from pathlib import Path

from gradscope.errors import GradscopeError
from gradscope.target.user_code import nearest


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
