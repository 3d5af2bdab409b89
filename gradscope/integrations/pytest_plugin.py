"""The pytest plugin: the fixture and marker `gradscope`, and the option `--gradscope`.

pytest imports this module in every test run of an environment with gradscope. pytest is therefore
no dependency of gradscope. Only tests that check gradients import torch and rich.
"""

from __future__ import annotations

import dataclasses
import shutil
from collections.abc import Callable, Generator, Iterable
from difflib import get_close_matches
from typing import TYPE_CHECKING, Protocol, TypedDict, Unpack

import pytest

from gradscope.integrations.check_events import Check, listening

if TYPE_CHECKING:
    import torch
    from _pytest._code.code import TerminalRepr
    from torch import nn

    from gradscope.recording.finding import Severity
    from gradscope.session.report import Report


class Summary:
    """Collects the checks of all tests, also from other processes, and lists them at the end."""

    ATTRIBUTE = "gradscope_checks"
    """Attribute of a report: its checks as dictionaries."""
    BLINDNESS = "gradscope_blindness"
    """Attribute of a report: the reason why the test failed although its body passed."""

    def __init__(self) -> None:
        self._checks: list[tuple[str, Check]] = []
        self._failed: dict[str, str] = {}

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Store the checks of a test, and whether it failed."""
        for check in getattr(report, self.ATTRIBUTE, ()):
            self._checks.append((report.nodeid, Check(**check)))
        if report.failed:
            self._failed[report.nodeid] = getattr(report, self.BLINDNESS, "")

    def pytest_terminal_summary(
        self, terminalreporter: pytest.TerminalReporter, config: pytest.Config
    ) -> None:
        """Write the list."""
        if config.option.collectonly:
            return
        terminalreporter.section("gradients")
        # The list needs rich, which is imported only when it is requested.
        from gradscope.integrations.check_lines import check_lines

        is_folded = config.get_verbosity() <= 0
        for line in check_lines(self._checks, self._failed, is_folded=is_folded):
            terminalreporter.write_line(line)


class _WorkerNode(Protocol):
    """The part of an xdist worker that is used here."""

    config: pytest.Config
    workerinput: dict[str, object]


class MarkerOptions(TypedDict, total=False):
    """Options of the marker; see `gradscope.testing.assert_gradients_healthy`."""

    select: str | Iterable[str]
    ignore: str | Iterable[str]
    max_norm: float | None
    min_norm: float | None
    fail_level: Severity
    steps: int
    probe_steps: int
    seed: int | None


class CheckOptions(MarkerOptions, total=False):
    """Options of `check`."""

    optimizer: torch.optim.Optimizer | None
    grad_output: torch.Tensor | str | None
    eager: bool


_MARKER = "gradscope"
_MARKER_HELP = (
    f"{_MARKER}({', '.join(f'{name}=...' for name in MarkerOptions.__annotations__)}): "
    "the test checks gradients with the fixture `gradscope`; the arguments are its defaults."
)


@dataclasses.dataclass(slots=True)
class _Watched:
    """The state of a test that runs."""

    unreported: list[Check] = dataclasses.field(default_factory=list)
    checks: int = 0
    has_fixture: bool = False
    """Whether the test requested the fixture, directly or through another fixture."""
    obeyed_marker: bool = False
    """Whether a check was made that used the marker's options."""
    is_running: bool = False
    """Whether the test's body runs. Subtests are reported while it does."""


_WATCHED = pytest.StashKey[_Watched]()
_COLUMNS = pytest.StashKey[int | None]()
_WORKER_COLUMNS = "gradscope_columns"


def _watched(item: pytest.Item) -> _Watched:
    return item.stash.setdefault(_WATCHED, _Watched())


class GradientCheck:
    """The fixture `gradscope`: checks gradients with the options of the test's markers."""

    def __init__(self, defaults: MarkerOptions, made: Callable[[], None]) -> None:
        self._defaults, self._made = defaults, made

    def __repr__(self) -> str:
        """Return what pytest shows among the arguments of a failed test."""
        options = ", ".join(f"{name}={value!r}" for name, value in self._defaults.items())
        return f"{type(self).__name__}({options})"

    def check(
        self,
        model: nn.Module,
        batch: object,
        loss_fn: Callable[..., object] | str | None = None,
        **given: Unpack[CheckOptions],
    ) -> Report:
        """Fail the test if the gradients are not healthy, and return the report.

        Arguments override the markers, and inner markers override outer ones. See
        `gradscope.testing.assert_gradients_healthy` for the arguments.
        """
        __tracebackhide__ = True
        from gradscope.integrations.assertions import (
            UnhealthyGradientsError,
            assert_gradients_healthy,
        )

        options: CheckOptions = {**self._defaults, **given}
        try:
            report = assert_gradients_healthy(model, batch, loss_fn, **options)
        # Not `finally`: a call with a wrong argument has checked nothing.
        except UnhealthyGradientsError:
            self._made()
            raise
        self._made()
        return report


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add `--gradscope`."""
    parser.getgroup("gradscope").addoption(
        "--gradscope",
        action="store_true",
        help="list the gradient checks of the tests, one per line",
    )


def pytest_configure(config: pytest.Config) -> None:
    """Register the marker and the summary."""
    config.addinivalue_line("markers", _MARKER_HELP)
    config.stash[_COLUMNS] = _columns(config)
    if config.getoption("--gradscope"):
        config.pluginmanager.register(Summary(), "gradscope-summary")


def _columns(config: pytest.Config) -> int | None:
    """Return the width of the terminal, None if there is none.

    It is read before the tests run: later, files that capture the output replace the terminal.
    """
    if hasattr(config, "workerinput"):
        columns: int | None = config.workerinput.get(_WORKER_COLUMNS)
        return columns
    return shutil.get_terminal_size(fallback=(0, 0)).columns or None


@pytest.hookimpl(optionalhook=True)
def pytest_configure_node(node: _WorkerNode) -> None:
    """Send the width of the terminal to an xdist worker."""
    node.workerinput[_WORKER_COLUMNS] = node.config.stash[_COLUMNS]


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Reject markers with unknown arguments before any test runs.

    Raises:
        pytest.UsageError: A marker has an unknown argument.
    """
    if hasattr(config, "workerinput"):
        return  # xdist would lose the message: there the test fails
    for item in items:
        if wrong := _misuse(item):
            raise pytest.UsageError(f"{item.nodeid}: {wrong}")


def _misuse(item: pytest.Item) -> str | None:
    """Return what is wrong with the arguments of a test's markers, None if nothing is."""
    known = list(MarkerOptions.__annotations__)
    for mark in item.iter_markers(_MARKER):
        if mark.args:
            return f"pytest.mark.{_MARKER} takes named arguments only: {', '.join(known)}"
        for name in mark.kwargs:
            if name not in known:
                close = get_close_matches(name, known, n=1)
                hint = f"did you mean `{close[0]}`?" if close else f"it has {', '.join(known)}"
                return f"pytest.mark.{_MARKER} has no argument `{name}`: {hint}"
    return None


def _marked(item: pytest.Item) -> MarkerOptions:
    """Return the options of a test's markers; for each key, the innermost marker wins."""
    options: MarkerOptions = {}
    for mark in item.iter_markers(_MARKER):
        # `iter_markers` begins with the innermost marker.
        options = {**mark.kwargs, **options}  # type: ignore[typeddict-item]
    return options


@pytest.fixture
def gradscope(request: pytest.FixtureRequest) -> GradientCheck:
    """Check gradients: `gradscope.check(model, batch, loss_fn)`."""
    item = request.node
    _watched(item).has_fixture = True

    def made() -> None:
        _watched(item).obeyed_marker = True

    return GradientCheck(_marked(item), made)


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, object, object]:
    """Record the checks that a test makes, those of `assert_gradients_healthy` too."""

    def notice(check: Check) -> None:
        watched = _watched(item)
        watched.unreported.append(check)
        watched.checks += 1

    with listening(notice, item.config.stash[_COLUMNS]):
        return (yield)


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Reset the state of an earlier run of the same test."""
    item.stash[_WATCHED] = _Watched()
    if wrong := _misuse(item):
        pytest.fail(wrong, pytrace=False)


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None, None, None]:
    """Record when the body of a test runs."""
    watched = _watched(item)
    watched.is_running = True
    try:
        return (yield)
    finally:
        watched.is_running = False


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Fail a marked test that passed without a check, and add its checks to the report."""
    report = yield
    watched = _watched(item)
    # A report of a subtest: the body may still make its check.
    if watched.is_running:
        return report
    # It wraps pytest's xfail plugin: a test without a check neither failed nor passed as expected.
    if call.when == "call" and report.passed and (reason := _blindness(item, watched)):
        report.outcome = "failed"
        report.longrepr = _failure(item, ": ".join(reason))
        # pytest would show the failure as an expected one.
        vars(report).pop("wasxfail", None)
        vars(report)[Summary.BLINDNESS] = reason[0]
    # Setup, body and teardown of a test have a report each: every check is in one of them.
    if watched.unreported and item.config.getoption("--gradscope"):
        # Plain values only: xdist sends reports between processes.
        checks = [dataclasses.asdict(check) for check in watched.unreported]
        vars(report)[Summary.ATTRIBUTE] = checks
        watched.unreported.clear()
    return report


def _blindness(item: pytest.Item, watched: _Watched) -> tuple[str, str] | None:
    """Return why a marked test checked nothing, and what to do about it.

    None if the test made its check.
    """
    if watched.obeyed_marker or not _is_bound(item, watched):
        return None
    options = _marked(item)
    if not watched.checks:
        return (
            f"passed without a gradient check, but is marked `{_MARKER}`",
            "call gradscope.check(model, batch, loss_fn), or remove the marker",
        )
    if options:
        return (
            f"made no check with its marker's options ({', '.join(options)})",
            "assert_gradients_healthy ignores markers, gradscope.check uses them",
        )
    return None


def _is_bound(item: pytest.Item, watched: _Watched) -> bool:
    """Return whether a marker requires the test to check gradients.

    The test's own marker does. A marker of its class or module only sets options: there, the
    fixture decides.
    """
    own = any(mark.name == _MARKER for mark in item.own_markers)
    around = item.get_closest_marker(_MARKER) is not None
    return own or (around and watched.has_fixture)


def _failure(item: pytest.Item, reason: str) -> str | TerminalRepr:
    """Return what pytest shows for a test that the plugin failed."""
    # Raised and caught, because pytest formats exceptions with a traceback only.
    with pytest.raises(pytest.fail.Exception) as caught:
        pytest.fail(f"{item.name} {reason}", pytrace=False)
    return item.repr_failure(caught)
