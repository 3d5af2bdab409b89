"""Groups of options that several commands share, each declared once as a dataclass."""

import dataclasses
import inspect
from collections.abc import Callable, Iterator
from typing import get_type_hints


def with_groups(command: Callable[..., None]) -> Callable[..., None]:
    """Return a command whose parameters of dataclass type are spread into their fields.

    ```
    @with_groups
    def inspect(target: TargetArgument, output: OutputGroup) -> None: ...
    ```

    has the fields of `OutputGroup` as options, and is called with an instance of it. Parsers read a
    command's options from its signature, and know no groups.
    """
    groups = dict(_groups(command))

    def run(**values: object) -> None:
        instances: dict[str, object] = {
            name: kind(**{field: values.pop(field) for field in kind.__annotations__})
            for name, kind in groups.items()
        }
        command(**values, **instances)

    return with_parameters(run, tuple(_spread(command)), command)


def with_parameters(
    run: Callable[..., None],
    parameters: tuple[inspect.Parameter, ...],
    command: Callable[..., None],
) -> Callable[..., None]:
    """Return a function that a parser takes for a command with some parameters."""
    run.__name__, run.__doc__, run.__module__ = command.__name__, command.__doc__, __name__
    run.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    run.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    return run


def _groups(command: Callable[..., None]) -> Iterator[tuple[str, type]]:
    for parameter in inspect.signature(command).parameters.values():
        kind = parameter.annotation
        if isinstance(kind, type) and dataclasses.is_dataclass(kind):
            yield parameter.name, kind


def _spread(command: Callable[..., None]) -> Iterator[inspect.Parameter]:
    for parameter in inspect.signature(command).parameters.values():
        if not dataclasses.is_dataclass(parameter.annotation):
            yield parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY)
            continue
        hints = get_type_hints(parameter.annotation, include_extras=True)
        for field in dataclasses.fields(parameter.annotation):
            yield inspect.Parameter(
                field.name,
                inspect.Parameter.KEYWORD_ONLY,
                annotation=hints[field.name],
                default=field.default,
            )
