"""The marker `gradscope`: the tests it applies to, and its arguments."""

import pytest

from tests.nightly import some_on_push


def test_nearest_marker_wins_key_by_key(run_tests):
    result = run_tests("""
        pytestmark = pytest.mark.gradscope(max_norm=1e-9, ignore="GS201", probe_steps=0)

        def fails(gradscope, model, codes, **given):
            with pytest.raises(AssertionError) as caught:
                gradscope.check(model, BATCH, mse_loss, **given)
            assert [one.rule for one in caught.value.findings] == codes
            return caught.value.report

        def test_of_the_module(gradscope):
            assert fails(gradscope, HEALTHY, ["GS113"]).probes == ()

        @pytest.mark.gradscope(max_norm=1e9)
        class TestClass:
            def test_of_the_class(self, gradscope):
                gradscope.check(HEALTHY, BATCH, mse_loss)

            @pytest.mark.gradscope(min_norm=1e8, probe_steps=1)
            def test_of_the_function(self, gradscope):
                assert len(fails(gradscope, HEALTHY, ["GS113"]).probes) == 1

            def test_of_the_call(self, gradscope):
                fails(gradscope, HEALTHY, ["GS113"], max_norm=1e-9)

        @pytest.mark.parametrize(
            "limit", [pytest.param(1e9, marks=pytest.mark.gradscope(max_norm=1e9)), 1e-9]
        )
        def test_of_the_parameter(gradscope, limit):
            if limit > 1:
                gradscope.check(HEALTHY, BATCH, mse_loss)
            else:
                fails(gradscope, HEALTHY, ["GS113"])
    """)
    result.assert_outcomes(passed=6)


def test_marker_of_a_module_or_a_class_binds_what_has_the_fixture(run_tests):
    result = run_tests("""
        from gradscope.testing import assert_gradients_healthy

        pytestmark = pytest.mark.gradscope(max_norm=1e-9)

        def test_unrelated(): pass

        def test_function():
            assert_gradients_healthy(HEALTHY, BATCH, mse_loss, max_norm=1e9)

        class TestClass:
            pytestmark = pytest.mark.gradscope(min_norm=1e8)

            def test_unrelated(self): pass

            def test_forgot(self, gradscope): pass

        @pytest.fixture
        def checker(request): return request.getfixturevalue("gradscope")

        def test_forgot_by_fixture(checker): pass

        @pytest.mark.parametrize("size", [1, pytest.param(2, marks=pytest.mark.gradscope)])
        def test_own(size): pass
    """)
    result.assert_outcomes(passed=4, failed=3)
    for name in ("test_forgot", "test_forgot_by_fixture", "test_own[[]2[]]"):
        result.stdout.fnmatch_lines([f"{name} passed without a gradient check*"])


# Mistakes in the marker


@pytest.mark.parametrize(
    ("arguments", "message"),
    some_on_push(
        [
            ("max_nrom=3", "has no argument `max_nrom`: did you mean `max_norm`?"),
            ("colour=3", "has no argument `colour`: it has select, ignore, max_norm, *"),
            ("10.0", "takes named arguments only: select, *"),
        ],
        2,
    ),
)
def test_wrong_argument_is_an_error_of_usage_that_names_the_test(run_tests, arguments, message):
    result = run_tests(f"""
        class TestClass:
            @pytest.mark.gradscope({arguments})
            def test_wrong(self, gradscope): pass
    """)
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    position = "ERROR: test_it.py::TestClass::test_wrong: pytest.mark.gradscope "
    result.stderr.fnmatch_lines([position + message.replace("[", "[[]")])


def test_wrong_value_fails_the_test_with_a_line(run_tests):
    result = run_tests("""
        @pytest.mark.gradscope(select=["GS999"])
        def test_wrong(gradscope): gradscope.check(HEALTHY, BATCH, mse_loss)
    """)
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["E  *GradscopeError: no rule `GS999`*"])


def test_marker_is_listed(run_tests):
    run_tests("", "--markers").stdout.fnmatch_lines(["@pytest.mark.gradscope(select=..., *"])
