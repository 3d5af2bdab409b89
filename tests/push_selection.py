"""Chooses cases of parametrised tests that run nightly, as others run the same branches on a push.

`python -m tests.push_selection tests/rules/loss` runs the tests of a folder with `coverage`, which
has to be installed, and writes the folder's part of `tests/data/nightly_cases.json` again. At least
half of the cases of each test stay, and every branch that one of the folder's tests takes is still
taken by one that stays. Cases that are new, or have new names, run on each push, and so do those
that fail under `coverage`.
"""

import json
import sqlite3
import sys
import tempfile
import time
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from pathlib import Path

import pytest

from tests.nightly import CASES_FILE, cases_of_the_night

Branch = tuple[int, int, int]
"""File, and the lines of two statements that ran one after the other."""


class Measurement:
    """A plugin of pytest that measures what each test costs, and which branches it takes.

    Args:
        file: Where `coverage` writes them.
    """

    def __init__(self, file: Path) -> None:
        import coverage  # needed for this alone

        self._coverage = coverage.Coverage(
            data_file=str(file), source_pkgs=["gradscope"], branch=True, config_file=False
        )
        self.seconds: dict[str, float] = {}
        """By test: its processor time."""
        self.failed: set[str] = set()

    def pytest_sessionstart(self, session: pytest.Session) -> None:
        self._coverage.start()

    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        self._coverage.stop()
        self._coverage.save()

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed:
            self.failed.add(report.nodeid)

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_protocol(self, item: pytest.Item):
        self._coverage.switch_context(item.nodeid)
        start = time.process_time()
        try:
            return (yield)
        finally:
            self.seconds[item.nodeid] = time.process_time() - start


def branches_in(file: Path) -> dict[str, set[Branch]]:
    """Return by test the branches that it takes, from the file of `coverage`."""
    found: dict[str, set[Branch]] = defaultdict(set)
    base = sqlite3.connect(file)
    query = "SELECT context, file_id, fromno, tono FROM arc JOIN context ON context.id = context_id"
    for test, *branch in base.execute(query):
        found[test].add(tuple(branch))
    base.close()
    return found


def chosen(seconds: Mapping[str, float], branches: Mapping[str, set[Branch]]) -> list[str]:
    """Return the tests to leave out of a push, chosen from the costliest to the cheapest."""
    times_taken = Counter(one for taken in branches.values() for one in taken)
    cases = Counter(function_of(test) for test in seconds)
    staying = dict(cases)
    found: list[str] = []
    for test in sorted(seconds, key=seconds.__getitem__, reverse=True):
        function, taken = function_of(test), branches.get(test, set())
        is_half = staying[function] * 2 - 1 <= cases[function]
        if is_half or any(times_taken[one] == 1 for one in taken):
            continue
        times_taken.subtract(taken)
        staying[function] -= 1
        found.append(test)
    return found


def function_of(test: str) -> str:
    """Return a test without the name of its case."""
    return test.partition("[")[0]


def write(folders: Iterable[str], tests: Iterable[str]) -> None:
    """Write the choice of some folders again."""
    starts = tuple(folders)
    cases = {test: all_of for test, all_of in cases_of_the_night().items() if not _in(test, starts)}
    for test in sorted(tests):
        function, _, case = test.partition("[")
        cases.setdefault(function, []).append(case.removesuffix("]"))
    lines = (f"{json.dumps(name)}: {json.dumps(cases[name])}" for name in sorted(cases))
    CASES_FILE.write_text("{\n" + ",\n".join(lines) + "\n}\n", encoding="utf-8")


def _in(test: str, folders: tuple[str, ...]) -> bool:
    return test.startswith(tuple(f"{folder.rstrip('/')}/" for folder in folders))


def main(folders: list[str]) -> int:
    """Measure the tests of some folders, and write which of their cases run nightly."""
    write(folders, ())
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "coverage"
        measurement = Measurement(file)
        ended = pytest.main(["-q", *folders], plugins=[measurement])
        if ended in (pytest.ExitCode.OK, pytest.ExitCode.TESTS_FAILED):
            sound = {
                test: seconds
                for test, seconds in measurement.seconds.items()
                if test not in measurement.failed
            }
            taken = branches_in(file)
            write(folders, chosen(sound, {test: taken[test] for test in sound if test in taken}))
    return ended


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
