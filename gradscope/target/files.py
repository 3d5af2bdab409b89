"""Opens the files that the user names, or says what is wrong with their names."""

from pathlib import Path

from gradscope.errors import GradscopeError
from gradscope.target.user_code import nearest


def exists(path: Path) -> bool:
    """Whether there is such a file or directory; false too for names that no system allows."""
    try:
        return path.exists()
    except OSError:
        return False


def require_file(text: str, suffix: str | None = None) -> Path:
    """The path, of a file that can be opened.

    Args:
        text: The path as the user wrote it.
        suffix: Of the files to offer instead; None offers any.

    Raises:
        GradscopeError: There is no such file, or it cannot be read.
    """
    path = Path(text)
    try:
        path.open("rb").close()
    except FileNotFoundError:
        raise GradscopeError(
            f"cannot open {text!r}", cause="there is no such file", help=_similar(path, suffix)
        ) from None
    except (OSError, ValueError) as error:
        # A ValueError is a null byte in the name.
        cause = error.strerror if isinstance(error, OSError) else str(error)
        raise GradscopeError(f"cannot open {text!r}", cause=cause) from None
    return path


def _similar(path: Path, suffix: str | None) -> str | None:
    folder = path.parent
    if not folder.is_dir():
        return f"there is no directory {str(folder)!r}"
    names = [entry.name for entry in folder.iterdir() if suffix in (None, entry.suffix)]
    found = nearest(path.name, names)
    return None if found is None else f"did you mean {str(folder / found)!r}?"
