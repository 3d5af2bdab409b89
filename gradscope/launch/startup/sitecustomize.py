"""Starts a rank of a watched job under gradscope: the interpreter imports this before a script.

A watched script puts the folder of this file, and `GRADSCOPE_RANKS`, into the environment of the
processes that it starts. Those that are ranks begin again as `start_rank.py`; all others run as
they would, and pass both on to theirs. Nothing but what every interpreter has loaded is imported.
"""

import os
import sys
from _frozen_importlib import module_from_spec
from _frozen_importlib_external import PathFinder

_FOLDER = os.path.dirname(os.path.abspath(__file__))  # noqa: PTH100, PTH120 - pathlib is not loaded
_RANKS = ("RANK", "LOCAL_RANK")


def _is_rank() -> bool:
    """Return whether this process is to be watched: it is a rank, and its parent is another."""
    text = os.environ.get("GRADSCOPE_RANKS", "")
    if not text or os.environ.get("GRADSCOPE", "").strip().lower() == "off":
        return False
    *known, prefix, _ = text.split("\n", 3)
    own = [os.environ.get(name, "") for name in _RANKS]
    return any(own) and own != known and prefix == sys.prefix


def _position_of_program(words: list[str]) -> int | None:
    """Return where the script, or `-m` and a module, stands in a command line of python."""
    position = 1
    while position < len(words):
        word = words[position]
        if word[:1] != "-":
            return position
        letters = [] if word[1:2] in ("-", "") else list(word[1:])
        taking = next((at for at, letter in enumerate(letters) if letter in "cmWX"), None)
        if word == "-" or (taking is not None and letters[taking] == "c"):
            return None
        if taking is not None and letters[taking] == "m":
            return position if word == "-m" else None
        is_apart = taking == len(letters) - 1 or word == "--check-hash-based-pycs"
        position += 2 if is_apart else 1
    return None


def _start_again() -> None:
    words = sys.orig_argv
    position = _position_of_program(words)
    if position is None:
        return
    start = f"{_FOLDER}{os.sep}start_rank.py"
    # The second start of this process must not lead to a third.
    is_started = words[position] == start
    if is_started or words[position : position + 2] == ["-m", "gradscope"]:
        return
    again = [sys.executable, *words[1:position], start, *words[position:]]
    # The process stays the same, so that its launcher still knows it.
    os.execv(sys.executable, again)


def _load_hidden() -> None:
    """Load the module of this name that this one hides, if there is one."""
    sys.path[:] = [entry for entry in sys.path if entry != _FOLDER]
    spec = PathFinder.find_spec(__name__, sys.path)
    if spec is not None and spec.loader is not None:
        module = sys.modules[__name__] = module_from_spec(spec)
        spec.loader.exec_module(module)


if _is_rank():
    _start_again()
_load_hidden()
