"""Lets a fault of gradscope's own end the captures of a script, and nothing else."""

import functools
from collections.abc import Callable
from typing import Concatenate, ParamSpec, Protocol, TypeVar

from gradscope.capture.training.guard import is_interruption


class CanFail(Protocol):
    """What stops after a fault."""

    def fail(self, error: Exception) -> None:
        """Stop because of a fault."""


_Arguments = ParamSpec("_Arguments")
_Owner = TypeVar("_Owner", bound=CanFail)


def alone(
    part: Callable[Concatenate[_Owner, _Arguments], None],
) -> Callable[Concatenate[_Owner, _Arguments], None]:
    """Decorate a method whose fault ends the captures, and not the script."""

    @functools.wraps(part)
    def guarded(owner: _Owner, /, *args: _Arguments.args, **kwargs: _Arguments.kwargs) -> None:
        try:
            part(owner, *args, **kwargs)
        except Exception as error:
            owner.fail(error)
            if is_interruption(error):
                raise

    return guarded
