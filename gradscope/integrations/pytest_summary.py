"""The list of checks at the end of `pytest --gradscope`.

Like the plugin, it is loaded in every test run of an environment. It imports neither torch nor
rich.
"""

from __future__ import annotations

import pytest

from gradscope.integrations.check_events import Check


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
