"""Every test has to leave torch, and what of Python it could touch, as it found them."""

import gc
import importlib
import os
import shutil
import signal
import sys
import tempfile
import threading
from pathlib import Path
from types import ModuleType

import pytest
from hypothesis import settings

from gradscope.cli import main
from tests.forked import ForkedCommands
from tests.jobs import Jobs
from tests.nightly import leave_to_the_night

# How long an example takes says more about the machine than about the code under test.
settings.register_profile("ci", deadline=None, max_examples=12)
settings.register_profile("nightly", deadline=None, max_examples=200)
settings.load_profile("ci")  # `--hypothesis-profile nightly` overrides it

pytest_plugins = "pytester"
"""For the tests of the plugin; it costs every run two milliseconds."""

MEMORY = Path("/dev/shm")
"""Where Linux keeps files in memory."""

_ROOM = 2 * 10**9
"""Bytes that the files of the tests take there at most."""

_MANY = 1_000
"""Tests, of which some will make an optimizer."""

# A shell that starts the tests in the background has them ignore Ctrl-C, and so do all processes
# that they start.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

if sys.dont_write_bytecode:  # each worker and each process would compile every module again
    sys.dont_write_bytecode = False
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)

# Several workers share the cores, and threads that wait for each other's turn spin: on two cores,
# the same tests take twice the time. Set it to test with more.
os.environ.setdefault("OMP_NUM_THREADS", "1")

if "TMPDIR" not in os.environ and MEMORY.is_dir() and shutil.disk_usage(MEMORY).free > _ROOM:
    # Each recording waits for the disk several times, and survives no test.
    os.environ["TMPDIR"] = str(MEMORY)
    tempfile.tempdir = None

ENVIRONMENT = {
    **{name: value for name, value in os.environ.items() if not name.startswith("GITHUB_")},
    "OMP_NUM_THREADS": "1",
    "_TYPER_FORCE_DISABLE_TERMINAL": "1",
    "PYDANTIC_DISABLE_PLUGINS": "__all__",  # each command would look for them in every package
}
"""Of the processes that tests start."""

IMPORTED = (
    "torch",
    "torch._dynamo",  # by an optimizer; it takes as long as the rest of torch
    "torch.distributed.fsdp",
    "torch.distributed.tensor.parallel",
    "torch.utils.data",
    "libcst.metadata",
    "pydantic.type_adapter",  # by typer
    "pydantic.types",
    "typer.completion",
    "typer._adapters",
    "typer._click.decorators",
    "gradscope.capture.training.watch",
    "gradscope.check.baseline",
    "gradscope.cli.app",
    "gradscope.cli.checking",
    "gradscope.cli.run.judging",
    "gradscope.cli.run.launching",
    "gradscope.cli.shell.plain_parser",
    "gradscope.cli.run.recorders",
    "gradscope.cli.run.report",
    "gradscope.cli.processes.worker",
    "gradscope.comparison",
    "gradscope.config.configuration",
    "gradscope.recording.store",
    "gradscope.report.documents.check",
    "gradscope.report.documents.clipping",
    "gradscope.report.documents.comparison",
    "gradscope.report.concise",
    "gradscope.report.formats.text",
    "gradscope.report.html.page",
    "gradscope.report.documents.inspection",
    "gradscope.report.json.check",
    "gradscope.report.json.report",
    "gradscope.report.rule_manual",
    "gradscope.report.documents.run",
    "gradscope.session.api",
    "gradscope.step_capture.script_captures",
    "gradscope.target.discovery.source_check",
    "gradscope.target.loading",
)
"""What commands import, and the ranks of a job."""

_REPLACED_BY_TORCH = ("torch.manual_seed", "Module.__init__", "Module.__setstate__")
"""Functions that torch's compiler replaces for good when it is first used."""

_NAMESPACES = (
    "torch",
    "torch.autograd",
    "torch.autograd.graph",
    "torch.nn.functional",
    "torch.nn.modules.module",
    "torch.nn.utils",
    "torch.nn.utils.clip_grad",
    "torch.optim.optimizer",
    "torch.overrides",
)
"""Modules whose functions might be replaced."""


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_collection():
    """Search what is imported for garbage once, and not each time that it has grown."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.enable()


@pytest.hookimpl(tryfirst=True)  # before tests are chosen by their marks
def pytest_collection_modifyitems(items):
    """Leave cases out of a push whose branches others take."""
    leave_to_the_night(items)


def pytest_collection_finish(session):
    """Leave what was imported out of garbage collections, which many tests have run."""
    if len(session.items) > _MANY and "torch" in sys.modules:
        importlib.import_module("torch._dynamo")  # which the first optimizer would import
    gc.collect()
    gc.freeze()
    # A command freezes what it has loaded, and its process ends soon. In this one the garbage of
    # the tests before would stay, compiled models among it, and be seen by those after.
    gc.freeze = lambda: None


@pytest.hookimpl(trylast=True)  # after the fixtures have let go
def pytest_runtest_teardown(item, nextitem):
    """Let go of compiled models after the last test of a file that makes some.

    They live in circles, and a watch that begins looks for those that are alive.
    """
    is_last = nextitem is None or nextitem.path != item.path
    if is_last and "torch.compile" in item.path.read_text(encoding="utf-8"):
        sys.modules["torch"].compiler.reset()
        gc.collect()


def _classes(torch: ModuleType) -> tuple[type, ...]:
    """Classes whose methods might be replaced."""
    return (
        torch.Tensor,
        torch.nn.Module,
        torch.nn.Parameter,
        torch.autograd.Function,
        torch.optim.Optimizer,
    )


def _namespaces() -> dict[str, dict[str, object]]:
    """Return what each module and class of torch holds, by its name; nothing without torch."""
    if "torch.optim.optimizer" not in sys.modules:
        return {}
    owners = [sys.modules[name] for name in _NAMESPACES if name in sys.modules]
    # Copied whole, and looked at where something changed: these are thousands, before each test.
    return {
        owner.__name__: dict(vars(owner)) for owner in (*owners, *_classes(sys.modules["torch"]))
    }


def _replaced(before: dict[str, dict[str, object]]) -> list[str]:
    """Return the functions and methods that are no longer what they were."""
    now = _namespaces()
    return [
        f"{owner}.{name}"
        for owner, names in before.items()
        if names != now[owner]  # which is seldom, and quickly told
        for name, value in names.items()
        if now[owner].get(name) is not value
        and _is_function(value)
        and f"{owner}.{name}" not in _REPLACED_BY_TORCH
    ]


def _is_function(value: object) -> bool:
    """Whether it is what a patch could replace; caches and counters may change."""
    return callable(value) or isinstance(value, property | staticmethod | classmethod)


def _hooks() -> dict[str, object]:
    return {
        name: tuple(value)
        for owner in ("torch.nn.modules.module", "torch.optim.optimizer")
        for name, value in vars(sys.modules[owner]).items()
        if name.startswith("_global_") and isinstance(value, dict)
    }


def _modes(torch: ModuleType) -> dict[str, object]:
    frames = sys.modules.get("torch._dynamo.eval_frame")
    return {
        "torch function modes": torch._C._len_torch_function_stack(),
        "torch dispatch modes": torch._C._len_torch_dispatch_stack(),
        "saved tensor hooks": torch._C._autograd._top_saved_tensors_default_hooks(True),
        "grad mode": torch.is_grad_enabled(),
        "inference mode": torch.is_inference_mode_enabled(),
        "anomaly mode": torch.is_anomaly_enabled(),
        "autocast": torch.is_autocast_enabled("cpu"),
        "default type": torch.get_default_dtype(),
        "default device": str(torch.empty(0).device),
        "deterministic algorithms": torch.are_deterministic_algorithms_enabled(),
        "threads of torch": torch.get_num_threads(),
        "stance of the compiler": "default" if frames is None else frames._stance.stance,
    }


def _python() -> dict[str, object]:
    return {
        "garbage collection": gc.isenabled(),
        "trace function": sys.gettrace(),
        "profile function": sys.getprofile(),
        "thread profile function": threading.getprofile(),
        "exception hook": sys.excepthook,
        "recursion limit": sys.getrecursionlimit(),
    }


def _state() -> dict[str, object]:
    torch = sys.modules.get("torch")
    state = _python()
    if torch is not None and "torch.optim.optimizer" in sys.modules:
        state |= _modes(torch) | _hooks()
    return state


@pytest.fixture(autouse=True)
def _leaves_torch_as_found():
    """Fail a test that leaves a hook, mode, default or patched function behind.

    What the test itself imported for the first time is not known before it, and not compared.
    """
    state, namespaces = _state(), _namespaces()
    yield
    _let_go_of_no_device()
    after = _state()
    changed = [name for name, value in state.items() if not _same(value, after.get(name))]
    assert changed + _replaced(namespaces) == []


def _let_go_of_no_device():
    """Let torch 2.9 tell the default device, which it cannot once there was one and is none."""
    context = getattr(sys.modules.get("torch"), "_GLOBAL_DEVICE_CONTEXT", None)
    if context is not None and getattr(context, "device_context", context) is None:
        del context.device_context


def _same(before: object, after: object) -> bool:
    return before is after or (not callable(before) and before == after)


@pytest.fixture(scope="session")
def server():
    """A process that has imported what commands need, and forks for each."""
    commands = ForkedCommands(IMPORTED, ENVIRONMENT)
    yield commands
    commands.close()


@pytest.fixture(scope="session")
def gradscope_in(server):
    """Runs gradscope in a folder: `gradscope_in(folder, "inspect", "model.py", NO_COLOR="1")`.

    In a process that has torch at hand, and so are those that it starts; `ForkedCommands` tells
    what that cannot show. With `is_apart`, the processes that a command starts are new ones.
    """
    first = Path(__file__).with_name("forking_children.py")

    def run(folder, *arguments, is_apart=False, **environment):
        return server.run(
            folder, arguments, {**ENVIRONMENT, **environment}, first=None if is_apart else first
        )

    return run


@pytest.fixture(scope="session")
def plain_script_in(server):
    """Runs `train.py` of a folder without gradscope, in a process that has torch at hand."""
    first = Path(__file__).with_name("plain_script.py")
    return lambda folder: server.run(folder, (), ENVIRONMENT, first=first)


@pytest.fixture(scope="session")
def packages_imported_by(tmp_path_factory):
    """Runs gradscope in a process without torch; returns how it ended, and what it imported."""
    commands = ForkedCommands(("gradscope.cli.app",), ENVIRONMENT)
    first = Path(__file__).with_name("telling_imports.py")
    file = tmp_path_factory.mktemp("imports") / "packages.txt"

    def run(folder, *arguments):
        environment = {**ENVIRONMENT, "PACKAGES_FILE": str(file)}
        file.unlink(missing_ok=True)
        done = commands.run(folder, arguments, environment, first=first)
        return done, set(file.read_text().split())

    yield run
    commands.close()


@pytest.fixture(scope="session")
def ascii_gradscope_in(server):
    """Runs gradscope in a folder, with streams that encode nothing but ASCII."""
    first = Path(__file__).with_name("ascii_streams.py")
    return lambda folder, *arguments: server.run(folder, arguments, ENVIRONMENT, first=first)


@pytest.fixture(scope="session")
def jobs(server):
    """Runs jobs of a few ranks."""
    return Jobs(server)


@pytest.fixture
def command(monkeypatch, capsys):
    """Runs a command line in this process, and returns exit code, stdout and stderr."""
    monkeypatch.setattr(sys, "excepthook", sys.excepthook)  # which typer replaces

    def run(*arguments):
        monkeypatch.setattr(sys, "argv", ["gradscope", *map(str, arguments)])
        with pytest.raises(SystemExit) as ended:
            main()
        output = capsys.readouterr()
        return ended.value.code, output.out, output.err

    return run
