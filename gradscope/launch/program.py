"""The program to run: a script, a folder or archive with `__main__.py`, or a module (`-m`)."""

import importlib.util
import os
import sys
import zipimport
from importlib.machinery import ModuleSpec, PathFinder, SourceFileLoader
from pathlib import Path
from types import CodeType, ModuleType

from gradscope.errors import GradscopeError
from gradscope.frozen import dataclass


class CannotRunError(GradscopeError):
    """The program cannot be started: no line of the user's main module ran."""


_LAUNCHERS = frozenset(
    (
        *("accelerate", "accelerate.commands.launch", "deepspeed", "deepspeed.launcher.runner"),
        *("torch.distributed.run", "torch.distributed.launch", "torchrun"),
    )
)
"""Programs that start a script on several ranks."""
_INTERPRETERS = frozenset({"py", "python", "python3"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Program:
    """The program to run, and its arguments."""

    name: str
    """Path, or dotted name of a module, as the user wrote it."""
    arguments: tuple[str, ...] = ()
    """The program's `sys.argv[1:]`."""
    is_module: bool = False

    @property
    def stem(self) -> str:
        """Return the base name for files of this program, or of the script that it launches."""
        scripts = (word for word in self.arguments if word.endswith(".py"))
        if Path(self.name).name in _LAUNCHERS and (script := next(scripts, None)):
            return Path(script).stem
        if self.is_module:
            return self.name
        path = Path(self.name).resolve()
        return path.parent.name if path.stem == "__main__" else path.stem

    @property
    def folder(self) -> Path:
        """Return the first folder on its import path, unless python runs in safe-path mode."""
        if self.is_module:
            return Path.cwd()
        if _is_main_folder(self.name):
            return Path.cwd() / self.name
        return Path(self.name).resolve().parent


def check_program(program: Program) -> None:
    """Check that a program exists, as far as that is possible without running it.

    Raises:
        CannotRunError: It does not exist.
    """
    path = Path(program.name)
    if program.is_module:
        if path.suffix == ".py" and path.exists():
            raise _no_module(program)
        return
    if path.suffix == ".ipynb":
        raise CannotRunError(
            f"{program.name!r} is a notebook, not a script",
            help=f"jupyter nbconvert --to script {program.name}",
        )
    try:
        if _is_main_folder(program.name):
            return
        # Opening it tells about permissions, too.
        with path.open("rb"):
            pass
    except IsADirectoryError:
        raise CannotRunError(
            f"cannot run {program.name!r}", cause="it is a folder without a __main__.py"
        ) from None
    except OSError as error:
        raise CannotRunError(
            f"cannot open {program.name!r}", cause=error.strerror, help=_help_for(program)
        ) from None


def _help_for(program: Program) -> str | None:
    path = Path(program.name)
    if program.name in _INTERPRETERS and program.arguments:
        return f"gradscope run {' '.join(program.arguments)}"
    module = Path(*path.name.split("."))
    if os.path.exists(f"{module}.py") or os.path.exists(module / "__main__.py"):  # noqa: PTH110 - False for a name that is too long
        return f"a module is run with -m: gradscope run -m {path}"
    # Imported here, because only errors need it.
    import difflib

    folder = path.parent
    names = [one.stem for one in folder.glob("*.py")] if folder.is_dir() else []
    close = difflib.get_close_matches(path.stem, names, n=1)
    return f"did you mean {str(folder / close[0]) + '.py'!r}?" if close else None


def enter(program: Program) -> CodeType:
    """Set up this process for the program, up to its first line; return its code.

    `sys.argv`, `sys.path[0]` and `sys.modules["__main__"]` become as python sets them.

    Raises:
        CannotRunError: The program does not exist.
        SyntaxError: It is not Python.
    """
    if program.is_module:
        return _enter_module(program)
    if _is_main_folder(program.name):
        return _enter_folder(program)
    return _enter_script(program)


def _enter_script(program: Program) -> CodeType:
    sys.argv = [program.name, *program.arguments]
    _put_first(str(program.folder))
    # Not normalized, as in python.
    file = os.path.join(Path.cwd(), program.name)  # noqa: PTH118
    main = _new_main()
    main.__file__ = file
    main.__loader__ = SourceFileLoader("__main__", file)
    main.__dict__["__cached__"] = None
    try:
        # Bytes, because the script may declare another encoding than UTF-8.
        source = Path(file).read_bytes()
    except OSError as error:
        raise CannotRunError(f"cannot open {program.name!r}", cause=error.strerror) from None
    # Without `dont_inherit`, the `__future__` imports of this file would apply to the script.
    return compile(source, file, "exec", dont_inherit=True)


def _enter_folder(program: Program) -> CodeType:
    sys.argv = [program.name, *program.arguments]
    _put_first(str(program.folder), is_always=True)
    # Not `find_spec`, which would return the `__main__` that is running.
    spec = PathFinder.find_spec("__main__", [str(program.folder)])
    return _enter_spec(spec, program)


def _enter_module(program: Program) -> CodeType:
    # Parent packages see this value while they are imported.
    sys.argv = ["-m", *program.arguments]
    _put_first(str(program.folder))
    spec = _find(program.name, program)
    if spec is not None and spec.submodule_search_locations is not None:
        spec = _find(f"{program.name}.__main__", program)
        if spec is None:
            raise CannotRunError(
                f"cannot run {program.name!r}", cause="it is a package without a __main__.py"
            )
    code = _enter_spec(spec, program)
    sys.argv[0] = sys.modules["__main__"].__file__ or program.name
    return code


def _find(name: str, program: Program) -> ModuleSpec | None:
    """Find a module, and import its parent packages."""
    try:
        return importlib.util.find_spec(name)
    except ModuleNotFoundError as error:
        # A failing import inside one of those packages is the program's own failure.
        if error.name is None or not f"{name}.".startswith(f"{error.name}."):
            raise
        raise _no_module(program) from None
    except ValueError:
        raise _no_module(program) from None


def _no_module(program: Program) -> CannotRunError:
    is_path = program.name.endswith(".py") or os.sep in program.name
    return CannotRunError(
        f"no module named {program.name!r}",
        help="-m takes the dotted name of a module; omit it to run a file"
        if is_path
        else f"install it in this environment: {sys.executable} -m pip install"
        f" {program.name.partition('.')[0]}",
    )


def _enter_spec(spec: ModuleSpec | None, program: Program) -> CodeType:
    # Archive loaders are not registered as `InspectLoader`, though they implement it.
    get_code = None if spec is None else getattr(spec.loader, "get_code", None)
    if spec is None or get_code is None:
        raise _no_module(program)
    code: CodeType | None = get_code(spec.name)
    if code is None:
        raise CannotRunError(f"cannot run {program.name!r}", cause="it has no Python code")
    main = _new_main()
    main.__spec__, main.__package__, main.__loader__ = spec, spec.parent, spec.loader
    main.__file__ = spec.origin
    main.__dict__["__cached__"] = spec.cached
    return code


def _is_main_folder(name: str) -> bool:
    path = Path(name)
    if path.is_dir():
        return (path / "__main__.py").exists()
    return path.is_file() and _is_archive(path)


def _is_archive(path: Path) -> bool:
    try:
        zipimport.zipimporter(str(path))
    except zipimport.ZipImportError:
        return False
    return True


def _new_main() -> ModuleType:
    main = ModuleType("__main__")
    main.__dict__["__builtins__"] = sys.modules["builtins"]
    if sys.version_info < (3, 14):
        # Python 3.14 makes them when they are asked for.
        main.__annotations__ = {}
    sys.modules["__main__"] = main
    return main


def _put_first(entry: str, *, is_always: bool = False) -> None:
    """Replace the first entry of `sys.path`, which python has set for gradscope.

    With `-P` and `-I` python adds no entry, except for a folder that is run itself.
    """
    if not sys.flags.safe_path:
        sys.path[0] = entry
    elif is_always:
        sys.path.insert(0, entry)
