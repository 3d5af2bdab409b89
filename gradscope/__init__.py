"""gradscope: the debugger for gradients in PyTorch.

Under `gradscope run -m pytest` this file is imported before pytest, which would warn that it can no
longer rewrite its assertions. It has none: PYTEST_DONT_REWRITE
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from gradscope.version import __version__

__all__ = ["Report", "__version__", "inspect", "watch"]

if TYPE_CHECKING:
    from gradscope.session.api import inspect
    from gradscope.session.report import Report
    from gradscope.session.watching import watch


def load_ipython_extension(shell: object) -> None:
    """Add `%%gradscope`: called by `%load_ext gradscope`."""
    from gradscope.integrations.notebook import add_magic

    add_magic(shell)


def __getattr__(name: str) -> object:
    # torch takes more than a second to import: `gradscope --help` must not pay for it.
    if name == "inspect":
        from gradscope.session.api import inspect

        return inspect
    if name == "watch":
        from gradscope.session.watching import watch

        return watch
    if name == "Report":
        from gradscope.session.report import Report

        return Report
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
