"""`pytest --gradscope`: the checks of all tests, one per line."""

import dataclasses

import pytest
import torch
from torch import nn

from gradscope.integrations import pytest_plugin
from gradscope.integrations.check_events import Check, announce, listening
from gradscope.integrations.check_lines import check_lines
from gradscope.report.brief import failure_text
from gradscope.testing import UnhealthyGradientsError, assert_gradients_healthy
from tests.nightly import some_on_push

CHECK = Check(
    model="Net",
    passed=True,
    parameters=1,
    grad_norm=0.25,
    errors=0,
    warnings=0,
    notes=0,
    worst="",
    location="",
)
BROKEN = dataclasses.replace(
    CHECK, passed=False, errors=1, warnings=2, worst="GS101 exploding-gradient", location="net.py:3"
)


INDENT = 8


def lines(*checks, is_folded=True):
    """The lines of tests with a check each, which fail where it does."""
    named = [(f"test_{number}", check) for number, check in enumerate(checks)]
    failed = {name: "" for name, check in named if not check.passed}
    return list(check_lines(named, failed, is_folded=is_folded))


def test_line_of_a_check():
    assert lines(BROKEN) == [
        "        test    model  parameters  norm   findings",
        "FAILED  test_0  Net    1           0.250  "
        "1 error, 2 warnings: GS101 exploding-gradient net.py:3",
        "1 check, 1 failed: 1 error, 2 warnings",
    ]


def test_worst_first():
    large = dataclasses.replace(CHECK, model="A" * 20, parameters=12_000, grad_norm=None)
    titles, *rows, closing = lines(CHECK, large, BROKEN)
    assert [row.split()[1] for row in rows] == ["test_2", "test_0", "test_1"]
    assert {row[titles.index("norm") :].split()[0] for row in rows} == {"0.250", "-"}
    assert closing == "3 checks, 1 failed: 1 error, 2 warnings"


def test_tests_that_go_otherwise_than_their_checks():
    checks = [("test_raises", BROKEN), ("test_later", CHECK), ("test_marked", CHECK)]
    failed = {"test_later": "", "test_marked": "saw no marker", "test_blind": "saw nothing"}
    failed["test_unrelated"] = ""
    _, *rows, closing = check_lines(checks, failed, is_folded=True)
    told = [tuple(row.split(maxsplit=5)) for row in rows]
    assert [(status, test, findings) for status, test, _, _, _, findings in told] == [
        ("FAILED", "test_later", "no findings; the test failed for another reason"),
        ("FAILED", "test_marked", "no findings; saw no marker"),
        ("FAILED", "test_blind", "saw nothing"),
        (
            "caught",
            "test_raises",
            "1 error, 2 warnings: GS101 exploding-gradient net.py:3; the test expects it",
        ),
    ]
    assert closing == (
        "3 checks, 1 failed and caught, 3 tests failed otherwise: 1 error, 2 warnings"
    )


def test_several_checks_of_one_test():
    checks = [("test", CHECK), ("test", BROKEN)]
    _, *rows, closing = check_lines(checks, {"test": ""}, is_folded=True)
    assert [row.split()[0] for row in rows] == ["FAILED", "passed"]
    assert closing == "2 checks, 1 failed: 1 error, 2 warnings"


@pytest.mark.parametrize("norm", [float("nan"), float("inf"), 0.0])
def test_unusual_norms(norm):
    shown = lines(dataclasses.replace(CHECK, grad_norm=norm))[1]
    assert f" {norm:.0f}  " in shown


def test_many_checks_are_folded():
    shown = lines(*[CHECK] * 30, BROKEN)
    assert len(shown) == 23
    assert shown[1].startswith("FAILED")
    assert shown[-2:] == [
        "and 11 more, no findings: -v lists them",
        "31 checks, 1 failed: 1 error, 2 warnings",
    ]
    assert len(lines(*[CHECK] * 31, is_folded=False)) == 33


def test_no_check():
    assert lines() == ["no test checked gradients"]


def test_the_last_listener_is_told():
    outer, inner = [], []
    announce(CHECK)
    with listening(outer.append):
        announce(CHECK)
        with listening(inner.append):
            announce(BROKEN)
        announce(CHECK)
    announce(CHECK)
    assert (outer, inner) == ([CHECK, CHECK], [BROKEN])


SUITE = """
    from gradscope.testing import assert_gradients_healthy

    def test_healthy(gradscope):
        gradscope.check(HEALTHY, BATCH, mse_loss)

    def test_function():
        assert_gradients_healthy(HEALTHY, BATCH, mse_loss)

    def test_cut(gradscope):
        gradscope.check(CUT, BATCH, mse_loss)
"""


def test_section(run_tests):
    result = run_tests(SUITE, "--gradscope")
    result.stdout.fnmatch_lines(
        [
            "=* gradients *=",
            "FAILED  test_it.py::test_cut *Cut * 4 *1 error: GS201 * test_it.py:*",
            "passed  test_it.py::test_healthy *Sequential * 4 * 0.* no findings",
            "passed  test_it.py::test_function *no findings",
            "3 checks, 1 failed: 1 error",
        ]
    )


def test_check_that_saw_nothing(run_tests):
    result = run_tests(
        """
        def test_nothing(gradscope):
            gradscope.check(HEALTHY, BATCH, mse_loss, select="GS205")
        """,
        "--gradscope",
    )
    result.stdout.fnmatch_lines(
        ["FAILED *test_nothing *no findings: no rule could check the gradients"]
    )


def test_section_is_asked_for(run_tests):
    run_tests(SUITE).stdout.no_fnmatch_line("*gradients =*")


def test_nothing_is_listed_where_nothing_ran(run_tests):
    result = run_tests("def test_plain(): pass", "--gradscope")
    result.stdout.fnmatch_lines(["no test checked gradients"])
    result = run_tests(SUITE, "--gradscope", "--collect-only")
    result.stdout.no_fnmatch_line("*gradients =*")


def test_list_agrees_with_pytest(run_tests):
    result = run_tests(
        """
        from gradscope.testing import assert_gradients_healthy

        def test_later(gradscope):
            gradscope.check(HEALTHY, BATCH, mse_loss)
            assert 1 > 2

        def test_raises(gradscope):
            with pytest.raises(AssertionError):
                gradscope.check(CUT, BATCH, mse_loss)

        @pytest.mark.gradscope(max_norm=1)
        def test_plain(): assert_gradients_healthy(HEALTHY, BATCH, mse_loss)

        @pytest.mark.gradscope
        def test_blind(): pass
        """,
        "--gradscope",
    )
    result.assert_outcomes(passed=1, failed=3)
    result.stdout.fnmatch_lines(
        [
            "FAILED *::test_later *no findings; the test failed for another reason",
            "FAILED *::test_plain *no findings; made no check with its marker's options (max_norm)",
            "FAILED *::test_blind * - *passed without a gradient check*",
            "caught *::test_raises *1 error: GS201 *; the test expects it",
            "3 checks, 1 failed and caught, 3 tests failed otherwise: 1 error",
        ]
    )


class Cut(nn.Module):
    def __init__(self):
        super().__init__()
        self.encoder, self.decoder = nn.Linear(4, 3), nn.Linear(3, 4)

    def forward(self, x):
        code = self.encoder(x).detach()  # a line that is longer than a narrow terminal is
        return self.decoder(code)


def unhealthy() -> UnhealthyGradientsError:
    with pytest.raises(UnhealthyGradientsError) as caught:
        assert_gradients_healthy(Cut(), torch.ones(2, 4), "mean", fail_level="note")
    return caught.value


def width(text: str) -> int:
    """The widest line behind the first, which pytest begins with the exception's name."""
    return max(map(len, text.splitlines()[1:])) + INDENT


@pytest.mark.parametrize(
    ("columns", "widest"),
    some_on_push([("80", 80), ("72", 72), ("40", 68), ("200", 100), ("100", 100)], 2),
)
def test_text_is_as_wide_as_the_terminal(monkeypatch, columns, widest):
    monkeypatch.setenv("COLUMNS", columns)
    assert widest - 12 < width(str(unhealthy())) <= widest


def test_who_listens_knows_the_terminal(monkeypatch):
    monkeypatch.setenv("COLUMNS", "200")
    with listening(lambda check: None, 72):
        assert width(str(unhealthy())) <= 72


def test_lines_of_further_findings_are_folded(monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    error = unhealthy()
    findings = tuple(
        dataclasses.replace(error.findings[0], rule=f"GS9{number:02}") for number in range(20)
    )
    assert width(failure_text(error.report, findings, None)) <= 80


def test_terminal_behind_the_capture_counts(run_tests, monkeypatch):
    monkeypatch.setattr(pytest_plugin, "_columns", lambda config: 72)
    result = run_tests("""
        def test_cut(gradscope):
            gradscope.check(CUT, BATCH, mse_loss)
    """)
    told = [line for line in result.outlines if line.startswith("E    ")]
    assert "GS201" in told[0]
    assert 60 < max(map(len, told[1:])) <= 72
