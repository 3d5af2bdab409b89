"""Has the ranks watched that a program starts as processes of their own: the environment asks it.

Trainers start one process per device, and launchers one per rank, with the rank in its environment.
"""

import functools
import inspect
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Final

VARIABLE: Final = "GRADSCOPE_RANKS"
"""Environment variable of the processes that a program starts. Lines: `RANK` and `LOCAL_RANK` of
the program, its `sys.prefix`, and what ranks do."""

_FOLDER = str(Path(__file__).with_name("startup"))
_PATH = "PYTHONPATH"
_RANKS = ("RANK", "LOCAL_RANK")
_LAUNCHERS = ("python", "torchrun", "accelerate", "deepspeed", "bash", "sh", "env", "numactl")
"""First words of the names of commands that start ranks. No other command gets the variable."""
_SECONDS = 60.0
"""How long a program that has ended waits for the ranks that it started."""


class StartedRanks:
    """The ranks that a program starts.

    Args:
        plan: What ranks do, for `taken_plan`.
    """

    def __init__(self, plan: str) -> None:
        self._plan = plan
        self._processes: list[subprocess.Popen[Any]] = []

    @contextmanager
    def watched(self) -> Iterator[None]:
        """Put the plan into the environment of ranks, and of launchers, started in the block."""
        if os.name == "nt" or _rank_of(os.environ):  # a rank starts no ranks
            yield
            return
        # All ways of `subprocess` to start a process make a `Popen`.
        original = subprocess.Popen.__init__
        replaced = self._wrapped(original)
        subprocess.Popen.__init__ = replaced  # type: ignore[method-assign]
        try:
            yield
        finally:
            if subprocess.Popen.__init__ is replaced:
                subprocess.Popen.__init__ = original  # type: ignore[method-assign]

    def wait(self) -> None:
        """Wait for the ranks to end: the first rank may have done so before the others."""
        end = time.monotonic() + _SECONDS
        for process in self._processes:
            with suppress(subprocess.TimeoutExpired, OSError):
                process.wait(max(end - time.monotonic(), 0))

    def _wrapped(self, original: Callable[..., None]) -> Callable[..., None]:
        signature = inspect.signature(original)

        @functools.wraps(original)
        def __init__(process: subprocess.Popen[Any], *args: Any, **kwargs: Any) -> None:  # noqa: ANN401, N807
            try:
                bound = signature.bind(process, *args, **kwargs)
            except TypeError:  # which the call then raises by itself
                return original(process, *args, **kwargs)
            environment = self._environment(bound.arguments)
            if environment is None:
                return original(process, *args, **kwargs)
            bound.arguments["env"] = environment
            original(*bound.args, **bound.kwargs)
            if _is_own_rank(environment):
                self._processes.append(process)

        return __init__

    def _environment(self, given: Mapping[str, Any]) -> dict[str, str] | None:
        """Return the environment of a process; None to leave it as it is."""
        environment = given.get("env")
        environment = dict(os.environ if environment is None else environment)
        # An environment of bytes, or a wrong one: `Popen` deals with it.
        if not all(isinstance(one, str) for item in environment.items() for one in item):
            return None
        if not (given.get("shell") or _is_launcher(given["args"])):
            return None
        known = [os.environ.get(name, "") for name in _RANKS]
        environment[VARIABLE] = "\n".join([*known, sys.prefix, self._plan])
        before = environment.get(_PATH)
        environment[_PATH] = _FOLDER if before is None else f"{_FOLDER}{os.pathsep}{before}"
        return environment


def taken_plan() -> str:
    """Return what this rank is to do, and restore the environment of its process."""
    plan = os.environ.pop(VARIABLE).split("\n", len(_RANKS) + 1)[-1]
    entries = os.environ[_PATH].split(os.pathsep)
    entries.remove(_FOLDER)
    if entries:
        os.environ[_PATH] = os.pathsep.join(entries)
    else:
        del os.environ[_PATH]
    return plan


def own_rank() -> int:
    """Return the number of this rank, on this host if it knows no other."""
    text = _rank_of(os.environ)
    return int(text) if text.isdecimal() else 0


def _rank_of(environment: Mapping[str, str]) -> str:
    return next(filter(None, map(environment.get, _RANKS)), "")


def _is_own_rank(environment: Mapping[str, str]) -> bool:
    """Return whether the environment of a process makes it a rank other than this process."""
    own = [environment.get(name, "") for name in _RANKS]
    return any(own) and own != [os.environ.get(name, "") for name in _RANKS]


def _is_launcher(command: str | os.PathLike[str] | Sequence[object]) -> bool:
    first = command if isinstance(command, str | os.PathLike) else next(iter(command), "")
    name = Path(os.fsdecode(first)).name if isinstance(first, str | bytes | os.PathLike) else ""
    return name.startswith(_LAUNCHERS)
