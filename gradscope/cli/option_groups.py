"""Options of commands as objects: the fields of dataclasses become options, and come back as one.

Parsers read a command's options from its signature. They know no groups of options.
"""

import dataclasses
import inspect
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Annotated, get_args, get_type_hints

from gradscope.options.checks import Value
from gradscope.options.declaration import Option, Overrides, Parameter, declarations


def with_groups(command: Callable[..., None]) -> Callable[..., None]:
    """Return a command whose parameters that hold several options are spread into those options.

    ```
    @with_groups
    def inspect(run: Annotated[Overrides, TargetOptions, Trial], view: ViewOptions) -> None: ...
    ```

    has the declared options of `TargetOptions` and `Trial`, and gets those that were given on the
    command line, by their configuration keys. It also has the fields of the dataclass `ViewOptions`
    as options, and gets an instance.
    """
    groups = {
        name: group
        for name, parameter in inspect.signature(command).parameters.items()
        if (group := _group(parameter)) is not None
    }

    def run(**values: object) -> None:
        instances = {name: group.value(values) for name, group in groups.items()}
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


class _Instance:
    """A dataclass with fields that are options; the command gets an instance."""

    def __init__(self, kind: type) -> None:
        self._kind = kind
        self._declared = declarations(kind)

    def parameters(self) -> Iterator[inspect.Parameter]:
        hints = get_type_hints(self._kind, include_extras=True)
        for key, declared in self._declared.items():
            yield _parameter(_name(key), hints[declared.field], declared.default)

    def value(self, values: dict[str, object]) -> object:
        """Return the instance, and take the values of its fields out of those of the command."""
        return self._kind(
            **{declared.field: values.pop(_name(key)) for key, declared in self._declared.items()}
        )


class _Overrides:
    """Dataclasses that declare options; the command gets the given ones by configuration key."""

    def __init__(self, kinds: tuple[type, ...]) -> None:
        self._declared = {
            key: declared for kind in kinds for key, declared in declarations(kind).items()
        }

    def parameters(self) -> Iterator[inspect.Parameter]:
        for key, declared in self._declared.items():
            yield _parameter(_name(key), declared.parameter, None)

    def value(self, values: dict[str, object]) -> Overrides:
        """Return the given options, and take all of them out of the values of the command."""
        taken = {key: values.pop(_name(key)) for key in self._declared}
        return {key: _plain(value) for key, value in taken.items() if value not in (None, [])}


def _plain(value: object) -> Value:
    """Return a parsed value as the configuration would hold it."""
    if isinstance(value, list):
        return tuple(value)
    assert isinstance(value, Path | str | int | float | bool)
    return str(value) if isinstance(value, Path) else value


def _name(key: str) -> str:
    return key.replace("-", "_")


def _group(parameter: inspect.Parameter) -> _Instance | _Overrides | None:
    """Return the group of options that a parameter holds; None if it is a single one."""
    kind = parameter.annotation
    if isinstance(kind, type) and dataclasses.is_dataclass(kind):
        return _Instance(kind)
    kinds = tuple(one for one in get_args(kind)[1:] if dataclasses.is_dataclass(one))
    return _Overrides(kinds) if kinds else None  # type: ignore[arg-type]


def _spread(command: Callable[..., None]) -> Iterator[inspect.Parameter]:
    for name, parameter in inspect.signature(command).parameters.items():
        group = _group(parameter)
        if group is None:
            yield _parameter(name, parameter.annotation, parameter.default)
        else:
            yield from group.parameters()


def _parameter(name: str, annotation: object, default: object) -> inspect.Parameter:
    """Return a parameter of a command; an option without a name is called like it."""
    kind, *metadata = get_args(annotation) or (annotation,)
    if metadata and isinstance(metadata[0], Option) and not metadata[0].names:
        named = Parameter(f"--{name.replace('_', '-')}", **metadata[0].settings)
        annotation = Annotated[kind, named]
    return inspect.Parameter(
        name, inspect.Parameter.KEYWORD_ONLY, annotation=annotation, default=default
    )
