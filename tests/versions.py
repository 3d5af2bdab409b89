"""Runs the tests with each supported release of torch: `python tests/versions.py`.

Each combination of torch and Python has a virtual environment of its own, which is made once and
used again. They run one after the other. What follows `--` goes to pytest:
`python tests/versions.py --only 2.9 -- tests/capture -q`.
"""

import argparse
import os
import shutil
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from xml.etree import ElementTree

ROOT = Path(__file__).parents[1]

FLOOR, NEWEST = "2.9", "newest"

RUNS = (
    (FLOOR, "3.11"),
    (FLOOR, "3.14"),
    ("2.13", "3.12"),
    ("2.13", "3.13"),
    (NEWEST, "3.11"),
    (NEWEST, "3.14"),
)
"""Pairs of torch and Python: each end with each end, and what lies between."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """The result of one combination."""

    torch: str
    python: str
    passed: int | None = None
    """None where the tests did not run."""
    failed: int | None = None
    seconds: float = 0.0
    note: str = ""
    has_failed: bool = False


def main() -> int:
    """Run the chosen combinations and print a table; return 1 if any failed or none ran."""
    ours, pytest_arguments = _split(sys.argv[1:])
    chosen = _parser().parse_args(ours)
    outcomes = [
        outcome_of(torch, python, chosen.folder, pytest_arguments)
        for torch, python in RUNS
        if chosen.only in (None, torch) and chosen.python in (None, python)
    ]
    print(table(outcomes))
    has_run = any(one.passed is not None for one in outcomes)
    return int(not has_run or any(one.has_failed for one in outcomes))


def outcome_of(torch: str, python: str, folder: Path, pytest_arguments: list[str]) -> Outcome:
    """Run the tests in one environment."""
    interpreter = find_python(python)
    if interpreter is None:
        return Outcome(torch=torch, python=python, note="skipped: no such Python here")
    print(f"torch {torch}, Python {python}", flush=True)
    began = time.perf_counter()
    own = environment(torch, python, interpreter, folder)
    if own is None:
        return Outcome(torch=torch, python=python, note="cannot be installed", has_failed=True)
    report = own / "junit.xml"
    report.unlink(missing_ok=True)
    command = [own / "bin" / "python", "-m", "pytest", f"--junit-xml={report}", *pytest_arguments]
    ended = subprocess.run(command, cwd=ROOT, env=_variables(), check=False)
    passed, failed = counts(report)
    return Outcome(
        torch=installed_torch(own) if torch == NEWEST else torch,
        python=python,
        passed=passed,
        failed=failed,
        seconds=time.perf_counter() - began,
        note="" if ended.returncode in (0, 1) else f"pytest ended with {ended.returncode}",
        has_failed=ended.returncode != 0,
    )


def find_python(version: str) -> str | None:
    """Return an interpreter of a version: one of pyenv's, or one in the PATH."""
    pyenv = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv")) / "versions"
    by_pyenv = sorted(pyenv.glob(f"{version}.*/bin/python"))
    in_path = shutil.which(f"python{version}")
    for found in (*map(str, reversed(by_pyenv)), in_path):
        if found is not None and _version_of(found) == version:
            return found
    return None


def environment(torch: str, python: str, interpreter: str, folder: Path) -> Path | None:
    """Return a virtual environment with torch and gradscope; None if installing has failed.

    The newest release is looked for each time.
    """
    own = folder.resolve() / f"torch-{torch}-python-{python}"
    pip = [own / "bin" / "python", "-m", "pip", "install", "--quiet"]
    wanted = "torch" if torch == NEWEST else f"torch=={torch}.*"
    gradscope = ["--editable", f"{ROOT}[dev]"]
    made = own.exists() or _ran([interpreter, "-m", "venv", own])
    is_ready = made and _ran([*pip, "--upgrade", wanted]) and _ran([*pip, wanted, *gradscope])
    return own if is_ready else None


def installed_torch(own: Path) -> str:
    """Return the version of torch in an environment."""
    code = "from importlib.metadata import version; print(version('torch'))"
    command = [own / "bin" / "python", "-c", code]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()


def counts(report: Path) -> tuple[int | None, int | None]:
    """Return how many tests passed and failed by a report of pytest's; None without one."""
    if not report.exists():
        return None, None
    (suite,) = ElementTree.parse(report).getroot().iter("testsuite")
    tests, skipped, *broken = (
        int(suite.attrib[name]) for name in ("tests", "skipped", "failures", "errors")
    )
    return tests - skipped - sum(broken), sum(broken)


def table(outcomes: list[Outcome]) -> str:
    """Return the outcomes as lines of text."""
    lines = [f"{'torch':<10} {'Python':<8} {'passed':>7} {'failed':>7} {'seconds':>8}"]
    for one in outcomes:
        passed, failed = ("-" if n is None else n for n in (one.passed, one.failed))
        line = f"{one.torch:<10} {one.python:<8} {passed:>7} {failed:>7} {one.seconds:>8.0f}"
        lines.append(f"{line}  {one.note}".rstrip())
    return "\n".join(lines)


def _split(arguments: list[str]) -> tuple[list[str], list[str]]:
    """Return the arguments before `--` and those after."""
    if "--" not in arguments:
        return arguments, []
    mark = arguments.index("--")
    return arguments[:mark], arguments[mark + 1 :]


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--only", choices=sorted({torch for torch, _ in RUNS}), help="this torch")
    parser.add_argument(
        "--python", choices=sorted({python for _, python in RUNS}), help="this Python"
    )
    parser.add_argument(
        "--folder",
        type=Path,
        default=ROOT / ".venv-versions",
        help="keeps the environments (default: %(default)s)",
    )
    return parser


def _version_of(interpreter: str) -> str | None:
    """Return the version that an interpreter has, None if it does not start."""
    code = "import sys; print(*sys.version_info[:2], sep='.')"
    done = subprocess.run([interpreter, "-c", code], capture_output=True, text=True, check=False)
    return done.stdout.strip() if done.returncode == 0 else None


def _ran(command: list[str | Path]) -> bool:
    return subprocess.run(command, check=False).returncode == 0


def _variables() -> dict[str, str]:
    return {**os.environ, "OMP_NUM_THREADS": os.environ.get("OMP_NUM_THREADS", "1")}


if __name__ == "__main__":
    sys.exit(main())
