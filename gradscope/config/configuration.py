"""The configuration of a project, read from `[tool.gradscope]` of the nearest pyproject.toml."""

import importlib.util
import re
from collections.abc import Mapping
from pathlib import Path

from gradscope.check.options import BaselineOptions, PlannedTarget, Policy
from gradscope.config import keys
from gradscope.config.document import Source, Table, find_document, working_directory
from gradscope.config.formats import OutputFormat
from gradscope.errors import GradscopeError
from gradscope.frozen import dataclass
from gradscope.options.checks import Value, checked_option, did_you_mean
from gradscope.options.declaration import field_values
from gradscope.rules.settings import DEFAULT_SETTINGS, Settings
from gradscope.target.options import TargetOptions, Trial
from gradscope.target.user_code import exists

PLAIN_NAME = re.compile(r"\w[\w-]*")
"""Pattern of a configured target's name; it cannot match a path or a dotted module."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Configuration:
    """The configuration of the user's file; defaults stand for missing keys."""

    file: Path | None
    """Absolute path of the file; None without a configuration."""
    folder: Path
    """Folder of the file, otherwise the working directory; named targets run there."""
    settings: Settings
    policy: Policy
    baseline: BaselineOptions
    """Baseline options; the file is an absolute path."""
    output_format: OutputFormat | None
    values: Mapping[str, Value]
    """Values of the top level by key, without tables."""
    targets: Mapping[str, Mapping[str, Value]]
    """Values of each target's table, by name and key; `target` is always among them."""
    sources: Mapping[tuple[str, ...], Source]
    """Location of each given key, by its path below `tool.gradscope`."""


def read_configuration(file: Path | None = None) -> Configuration:
    """Return the configuration of a file, or of the nearest pyproject.toml with `[tool.gradscope]`.

    Args:
        file: The file; None searches from the working directory upward.

    Raises:
        GradscopeError: The file cannot be read or has no such table; a key is unknown, or its
            value is wrong.
    """
    document = find_document(file)
    if document is None:
        return Configuration(
            file=None,
            folder=working_directory(),
            settings=DEFAULT_SETTINGS,
            policy=Policy(),
            baseline=BaselineOptions(),
            output_format=None,
            values={},
            targets={},
            sources={},
        )
    # Deferred: it imports all rules, which the file may name.
    from gradscope.config.checking import checked

    return checked(document)


def configured_settings(file: Path | None = None) -> Settings:
    """Return the settings of the rules of `read_configuration`."""
    return read_configuration(file).settings


def read_targets(table: Table) -> dict[str, Mapping[str, Value]]:
    """Return the values of every named target, by its name and the keys.

    Args:
        table: The table `tool.gradscope`.
    """
    targets = table.table(keys.TARGETS)
    return {name: _target(targets, name) for name in targets}


def _target(targets: Table, name: str) -> Mapping[str, Value]:
    if PLAIN_NAME.fullmatch(name) is None:
        targets.fail(name, "is not a valid target name", help="use letters, digits, - and _")
    if isinstance(targets.values[name], str):
        return {"target": targets.value(name, keys.LOADING["target"].check)}
    if not isinstance(targets.values[name], Mapping):
        example = f'{name} = "model.py", or [{targets.name}.{name}]'
        targets.fail(name, "has to be a string or a table", help=example)
    table = targets.table(name)
    table.check_keys(keys.OF_TARGET, "option of a target")
    if "target" not in table.values:
        targets.fail(name, "does not name a target", help='add target = "model.py:Net(hidden=8)"')
    found = {key: table.value(key, keys.OF_TARGET[key].check) for key in table}
    for one, other in keys.EXCLUSIVE:
        if one in found and other in found:
            table.fail(other, f"cannot be combined with `{one}`", help="remove one of them")
    return found


def plan_targets(
    configuration: Configuration, given: tuple[str, ...], overrides: Mapping[str, Value]
) -> tuple[PlannedTarget, ...]:
    """Return the targets of a command, each with all its options.

    A configured target's name means that target, whatever files there are: `./NAME` means the
    file. It runs in the folder of the configuration, and every other text is a target as written,
    in the working directory. What the command line says wins over the target's table, that over
    the top level of the configuration, and that over the defaults.

    Args:
        configuration: The user's configuration.
        given: Names and targets; all configured targets if empty.
        overrides: Options of the command line, by the keys of a target's table. Paths are relative
            to the working directory.

    Raises:
        GradscopeError: There is no target, a name resembles a configured one, or an override is
            wrong.
    """
    checked = {
        key: checked_option(key, value, keys.OF_TARGET[key].check)
        for key, value in overrides.items()
    }
    if not given and not configuration.targets:
        raise _no_target(configuration)
    names = dict.fromkeys(given or configuration.targets)  # without duplicates
    return tuple(_planned(name, configuration, checked) for name in names)


def _no_target(configuration: Configuration) -> GradscopeError:
    if configuration.file is None:
        missing = "no pyproject.toml configures one"
    else:
        missing = f"no [tool.gradscope.targets] in {configuration.file}"
    return GradscopeError(
        f"no target given, and {missing}",
        help="name one, such as model.py:Net, or configure it: "
        '[tool.gradscope.targets] with small = "model.py:Net"',
    )


def _planned(
    name: str, configuration: Configuration, overrides: Mapping[str, Value]
) -> PlannedTarget:
    cwd = working_directory()
    table = configuration.targets.get(name)
    if table is None:
        _check_not_misspelt(name, configuration)
        table, folder = {"target": name}, cwd
    else:
        folder = configuration.folder
    # The target runs in another folder than the one that its options were typed in.
    if folder != cwd:
        overrides = {key: _absolute(key, value, cwd) for key, value in overrides.items()}
    defaults = {
        key: configuration.values[key] for key in keys.RUNNING if key in configuration.values
    }
    values = _merged(defaults, table, overrides)
    arguments = values.get("args")
    return PlannedTarget(
        name=name,
        spec=str(values["target"]),
        folder=folder,
        options=TargetOptions(
            allow_guesses=bool(values.get("allow-guesses", False)),
            args=arguments if isinstance(arguments, tuple) else (),
            **field_values(TargetOptions, values),  # type: ignore[arg-type]
        ),
        trial=Trial(**field_values(Trial, values)),  # type: ignore[arg-type]
        **field_values(PlannedTarget, values),  # type: ignore[arg-type]
    )


def _merged(*layers: Mapping[str, Value]) -> dict[str, Value]:
    """Return the values of all layers; later layers win.

    A value also removes the earlier values that it excludes, such as `batch` for `input`.
    """
    merged: dict[str, Value] = {}
    for layer in layers:
        for one, other in keys.EXCLUSIVE:
            if one in layer:
                merged.pop(other, None)
            if other in layer:
                merged.pop(one, None)
        merged.update(layer)
    return merged


def _absolute(key: str, value: Value, cwd: Path) -> Value:
    """Return a path of the command line as an absolute path; other values unchanged."""
    if not isinstance(value, str) or key not in ("batch", "checkpoint", "grad-output"):
        return value
    is_path = key == "checkpoint" or exists(cwd / value)  # else an expression, or `ones`
    return str(cwd / value) if is_path else value


def _check_not_misspelt(name: str, configuration: Configuration) -> None:
    """Check that a text is not a misspelt name of a configured target.

    Raises:
        GradscopeError: The text resembles a name, and is neither a file nor a module.
    """
    hint = did_you_mean(name, configuration.targets)
    if hint is None or PLAIN_NAME.fullmatch(name) is None:
        return
    is_file = exists(Path(name)) or exists(Path(f"{name}.py"))
    if is_file or (name.isidentifier() and importlib.util.find_spec(name) is not None):
        return
    raise GradscopeError(
        f"no target `{name}`: it is not configured, and is neither a file nor a module", help=hint
    )
