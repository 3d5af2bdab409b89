"""The cell magic `%%gradscope` for Jupyter and IPython: watches a cell that trains."""

import ast
import shlex
import sys
from argparse import ArgumentParser, Namespace
from typing import Any, NoReturn

from IPython.core.error import UsageError
from IPython.display import display

from gradscope.errors import GradscopeError
from gradscope.session.watching import Watch, watch


class _Options(ArgumentParser):
    def error(self, message: str) -> NoReturn:
        # `ArgumentParser` would end the kernel.
        raise UsageError(f"%%gradscope: {message}\n{self.format_usage()}")


def _options() -> _Options:
    options = _Options(prog="%%gradscope", add_help=False)
    options.add_argument("name", nargs="?", help="variable that gets the watch")
    options.add_argument("--save", help="write the recording to this file")
    options.add_argument("--force", action="store_true", help="overwrite an existing file")
    options.add_argument("--select", default="", help="rules to run")
    options.add_argument("--ignore", default="", help="rules to leave out")
    options.add_argument("--every", type=int, help="measure gradients in every Nth step")
    options.add_argument("--log", action="append", help="send metrics to this tracker")
    return options


def add_magic(shell: Any) -> None:  # noqa: ANN401 - IPython has types for a part of it
    """Add `%%gradscope` to a shell."""

    def gradscope(line: str, cell: str) -> object:
        """Run the cell, record its training, and show the report.

        %%gradscope [NAME] [--save FILE] [--force] [--select RULES] [--ignore RULES] [--every N]
        [--log TRACKER]
        """
        chosen = _options().parse_args(shlex.split(line))
        try:
            watched = _watch(chosen)
        except GradscopeError as error:
            raise UsageError(f"%%gradscope: {error.what}") from None
        # Before the cell runs, which may use it.
        if chosen.name:
            shell.user_ns[chosen.name] = watched
        try:
            with watched:
                return _run(shell, cell)
        finally:
            _show(watched)

    shell.register_magic_function(gradscope, magic_kind="cell")


def _watch(chosen: Namespace) -> Watch:
    return watch(
        save=chosen.save,
        force=chosen.force,
        select=chosen.select,
        ignore=chosen.ignore,
        every=chosen.every,
        log=chosen.log,
    )


def _run(shell: Any, cell: str) -> object:  # noqa: ANN401
    """Run a cell below its first line, and return the value of its last expression."""
    source = "\n" + shell.transform_cell(cell)  # line numbers are those of the whole cell
    number = len(shell.history_manager.input_hist_raw) - 1  # `execution_count` may be the next one
    # IPython puts the lines into `linecache`, where tracebacks and gradscope read them.
    file = shell.compile.cache(source, number, raw_code=source)
    tree = ast.parse(source, file)
    # Run apart, because `exec` gives no value.
    last = tree.body.pop() if tree.body and isinstance(tree.body[-1], ast.Expr) else None
    # Not `run_cell`, which would record the cell in the history a second time.
    names: dict[str, Any] = shell.user_ns
    exec(shell.compile(tree, file, "exec"), names)
    if not isinstance(last, ast.Expr):
        return None
    return eval(shell.compile(ast.Expression(last.value), file, "eval"), names)


def _show(watched: Watch) -> None:
    try:
        display(watched.report())  # type: ignore[no-untyped-call]
    except GradscopeError as error:
        print(f"note: {error.what}", file=sys.stderr)  # noqa: T201 - as the command does
