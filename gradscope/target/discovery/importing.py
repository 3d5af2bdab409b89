"""Imports the target's file or module as python does, but never as `__main__`."""

import importlib
import importlib.util
import io
import linecache
import sys
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from functools import partial
from importlib.machinery import SourceFileLoader
from pathlib import Path
from traceback import extract_tb
from types import CodeType, ModuleType

from gradscope.errors import GradscopeError
from gradscope.frozen import dataclass
from gradscope.target.user_code import Advice, UserCode, did_you_mean, exists, require_file


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """The imported module of a target."""

    module: ModuleType
    location: str
    """Location as the user wrote it, for messages."""


@contextmanager
def command_line(location: str, arguments: tuple[str, ...]) -> Iterator[None]:
    """Set `sys.argv` for user code, as if it had been started with these arguments."""
    saved = sys.argv
    sys.argv = [location, *arguments]
    try:
        yield
    finally:
        sys.argv = saved


def import_source(location: str) -> Source:
    """Import a path or a dotted module name.

    `sys.path` and `sys.modules` keep the additions: the model may import more when it runs.

    Raises:
        GradscopeError: There is no such file or module.
        UserCodeError: It raised during the import.
    """
    path = find_file(location)
    with UserCode(f"while importing {location!r}", partial(_explain, path)):
        try:
            module = _import_module(location) if path is None else _import_file(path)
        except SystemExit as exit_request:
            # `SystemExit` would end gradscope without a word.
            raise _exited(location, path, exit_request) from None
    return Source(module=module, location=location)


def find_file(location: str) -> Path | None:
    """Return the file that a location means; None if it is the name of a module.

    Raises:
        GradscopeError: There is no such file, or it is no Python file.
    """
    path = Path(location)
    if exists(path) and path.is_dir():
        return _entry_file(path)
    is_module_name = all(part.isidentifier() for part in location.split("."))
    if is_module_name and not exists(path) and path.suffix not in {".py", ".ipynb"}:
        return None
    if path.suffix == ".gradscope":
        raise GradscopeError(
            f"{location!r} is a recording, not a target", help=f"gradscope report {location}"
        )
    if path.suffix == ".ipynb":
        raise GradscopeError(
            f"{location!r} is a notebook, not a Python file",
            help="in the notebook: gradscope.inspect(model, batch, loss_fn)",
        )
    found = require_file(location, ".py")
    if path.suffix != ".py":
        raise GradscopeError(
            f"{location!r} is no Python file", help="name a file that ends in .py, or a module"
        )
    return found


def _entry_file(directory: Path) -> Path:
    for name in ("hubconf.py", "__init__.py"):
        if (directory / name).is_file():
            return directory / name
    scripts = sorted(directory.glob("*.py"))
    raise GradscopeError(
        f"{str(directory)!r} is a directory without hubconf.py or __init__.py",
        help=f"name the file: {scripts[0] if scripts else directory / 'model.py'}",
    )


def _import_file(path: Path) -> ModuleType:
    path = path.resolve()
    # Its relative imports work only if it is imported as a part of its package.
    if (path.parent / "__init__.py").is_file():
        return _import_from_package(path)
    _search(path.parent)
    name = _module_name(path)
    loader = SourceFileLoader(name, str(path))
    spec = importlib.util.spec_from_file_location(name, path, loader=loader)
    if spec is None:
        raise GradscopeError(f"cannot import {str(path)!r} as Python code")
    module = importlib.util.module_from_spec(spec)
    with ExitStack() as undo:
        # dataclasses and pickle look the module up while it is still being executed.
        sys.modules[name] = module
        undo.callback(sys.modules.pop, name, None)
        loader.exec_module(module)
        undo.pop_all()
    return module


def _module_name(path: Path) -> str:
    stem = path.stem.replace(".", "_")
    # A file called `random.py` must not replace the standard library's for everyone else.
    taken = stem in sys.modules or stem in sys.stdlib_module_names or stem == "__main__"
    return f"_gradscope_target_{stem}" if taken else stem


def _import_from_package(path: Path) -> ModuleType:
    names = [] if path.stem == "__init__" else [path.stem]
    folder = path.parent
    while (folder / "__init__.py").is_file():
        names.insert(0, folder.name)
        folder = folder.parent
    _search(folder)
    dotted = ".".join(names)
    module = importlib.import_module(dotted)
    actual = getattr(module, "__file__", None)
    # Another package of this name was imported first, for example an installed one.
    if actual is None or Path(actual).resolve() != path:
        raise GradscopeError(
            f"{str(path)!r} belongs to the package {names[0]!r}, but that name is already imported",
            cause=f"{dotted!r} was imported from {str(actual)!r}",
            help=f"rename the package {names[0]!r}",
        )
    return module


def _import_module(name: str) -> ModuleType:
    _search(Path.cwd())
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        # Another missing module is the user's problem, and its own traceback says more.
        if error.name is None or not f"{name}.".startswith(f"{error.name}."):
            raise
        raise _no_module(error.name, name) from None


def check_module(name: str) -> None:
    """Make sure that the package of a dotted name exists, without importing it.

    Raises:
        GradscopeError: There is none.
    """
    top = name.partition(".")[0]
    _search(Path.cwd())
    if top in sys.modules:
        return
    # Only the package: `find_spec` of a module inside it would import the package.
    spec = importlib.util.find_spec(top)
    if spec is None:
        raise _no_module(top, name)
    if top != name and spec.submodule_search_locations is None:  # a file contains no modules
        raise _no_module(name, name)


def _no_module(missing: str, name: str) -> GradscopeError:
    return GradscopeError(
        f"no module named {missing!r}",
        cause=None if name == missing else f"needed for the target {name!r}",
        help=_file_instead(name),
    )


def _file_instead(name: str) -> str | None:
    """Return the file in the working directory that a module's name may have meant."""
    wanted = Path(*name.split(".")).with_suffix(".py")
    files = [str(path) for path in Path().glob(f"{'*/' * name.count('.')}*.py")]
    beside = [str(path) for ending in ("py", "gradscope") for path in Path().glob(f"*.{ending}")]
    return did_you_mean(name, beside) or did_you_mean(str(wanted), files)


def _search(folder: Path) -> None:
    """Make a folder the first import location, and the working directory one of the last.

    `python -m gradscope` has the working directory on the path, `gradscope` does not. A target must
    load in the same way with both.
    """
    if sys.path[:1] != [str(folder)]:
        sys.path.insert(0, str(folder))
    if not {"", str(Path.cwd())} & set(sys.path):
        sys.path.append(str(Path.cwd()))
    # The finder of a folder remembers its files: one written since would not be found.
    importlib.invalidate_caches()


def _exited(location: str, path: Path | None, exit_request: SystemExit) -> GradscopeError:
    code = 0 if exit_request.code is None else exit_request.code
    frames = extract_tb(exit_request.__traceback__)
    here = [frame for frame in frames if path is not None and frame.filename == str(path.resolve())]
    return GradscopeError(
        f"{location!r} exited (code {code}) while being imported: it runs code at top level",
        cause=f"line {here[-1].lineno}: {here[-1].line}" if here else None,
        help='put it under  if __name__ == "__main__":, or pass its args after --',
    )


def _explain(path: Path | None, error: BaseException) -> Advice:
    if isinstance(error, ModuleNotFoundError) and error.name:
        return Advice(help=_missing_module_help(error.name, path))
    if isinstance(error, ImportError) and "relative import" in str(error):
        return Advice(
            cause="the file is not inside a package (no __init__.py beside it)",
            help="add an __init__.py, or name the module: gradscope inspect package.module",
        )
    return Advice()


def _missing_module_help(name: str, path: Path | None) -> str:
    top = name.partition(".")[0]
    for folder in path.resolve().parents[1:] if path else ():
        if (folder / top / "__init__.py").is_file() or (folder / f"{top}.py").is_file():
            return f"{top!r} lies in {str(folder)!r}: run gradscope from there"
    if "pipx" in Path(sys.prefix).parts or "/uv/" in Path(sys.prefix).as_posix():
        return "gradscope is installed in another environment: install it where your code runs"
    return f"install it in THIS environment: {sys.executable} -m pip install {top}"


def install_overlay(texts: Mapping[str, str]) -> None:
    """Let all later imports of this process read some files as other texts.

    The process must import nothing else of the files before, and is not put back.

    Args:
        texts: Texts by absolute path.
    """
    own_code = SourceFileLoader.get_code

    def get_code(loader: SourceFileLoader, fullname: str) -> CodeType | None:
        path = loader.get_filename(fullname)
        if path not in texts:
            return own_code(loader, fullname)
        # Compiled here: a cached bytecode file has the code of the file on disk.
        return loader.source_to_code(texts[path], path)

    SourceFileLoader.get_code = get_code  # type: ignore[assignment,method-assign]
    for path, text in texts.items():
        # Without a time of modification, the entry stays although the file differs.
        lines = io.StringIO(text, newline=None).readlines()
        linecache.cache[path] = (len(text), None, lines, path)
