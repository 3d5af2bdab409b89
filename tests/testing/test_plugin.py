"""The fixture and the marker `gradscope`."""

import pytest


def test_fixture_checks(run_tests):
    result = run_tests("""
        def test_healthy(gradscope):
            assert gradscope.check(HEALTHY, BATCH, mse_loss).summary.reached == 4

        def test_cut(gradscope):
            gradscope.check(CUT, BATCH, mse_loss)
    """)
    result.assert_outcomes(passed=1, failed=1)
    result.stdout.fnmatch_lines(
        [
            ">*gradscope.check(CUT, BATCH, mse_loss)",
            "E*UnhealthyGradientsError: GS201 gradient-cut in Cut: 1 error",
            "E*--> test_it.py:* in Cut.forward",
            "E*return self.decoder(self.encoder(x)).detach().requires_grad_() * 2",
            "test_it.py:*: UnhealthyGradientsError",
        ]
    )
    result.stdout.no_fnmatch_line("*assert_gradients_healthy(*")  # which no frame shows


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


@pytest.mark.parametrize("level", ["note", "error"])
def test_fail_level_of_the_marker(run_tests, level):
    result = run_tests(f"""
        @pytest.mark.gradscope(fail_level="{level}")
        def test_idle(gradscope):
            HEALTHY.idle = nn.Linear(2, 2)
            HEALTHY.forward = lambda x: HEALTHY[2](HEALTHY[0](x))
            gradscope.check(HEALTHY, BATCH, mse_loss)
    """)
    result.assert_outcomes(failed=level == "note", passed=level == "error")


# Never green because it saw nothing


def test_marked_test_that_checks_nothing_fails(run_tests):
    result = run_tests("""
        @pytest.mark.gradscope
        def test_forgot(gradscope):
            pass

        @pytest.mark.gradscope
        @pytest.mark.parametrize("wanted", [True, False])
        def test_branch(gradscope, wanted):
            if wanted:
                gradscope.check(HEALTHY, BATCH, mse_loss)

        def test_unmarked():
            pass
    """)
    result.assert_outcomes(passed=2, failed=2)
    result.stdout.fnmatch_lines(
        ["test_forgot passed without having checked any gradient*gradscope.check(model, *"]
    )
    result.stdout.fnmatch_lines(["FAILED test_it.py::test_branch?False? - *passed without*"])


def test_what_does_not_pass_is_left_as_it_is(run_tests):
    result = run_tests("""
        pytestmark = pytest.mark.gradscope

        @pytest.mark.skip
        def test_skipped(): pass

        def test_skips(): pytest.skip()

        def test_xfails(): pytest.xfail()

        @pytest.mark.xfail
        def test_xfailed(): raise ValueError

        @pytest.mark.xfail
        def test_xfailed_check(gradscope): gradscope.check(CUT, BATCH, mse_loss)

        @pytest.fixture
        def broken(): raise ValueError

        def test_error(broken): pass

        def test_fails(): raise ValueError
    """)
    result.assert_outcomes(skipped=2, xfailed=3, errors=1, failed=1)
    result.stdout.no_fnmatch_line("*without having checked*")


@pytest.mark.parametrize("mark", ["xfail", "xfail(strict=True)"])
def test_expected_failure_that_passes_and_checks_nothing_fails(run_tests, mark):
    result = run_tests(f"""
        @pytest.mark.gradscope
        @pytest.mark.{mark}
        def test_forgot(): pass
    """)
    result.assert_outcomes(failed=1)


def test_expected_failure_that_passes_and_checks_is_told_as_ever(run_tests):
    result = run_tests("""
        @pytest.mark.gradscope
        @pytest.mark.xfail
        def test_healthy(gradscope): gradscope.check(HEALTHY, BATCH, mse_loss)
    """)
    result.assert_outcomes(xpassed=1)


def test_check_that_could_not_be_made_is_none(run_tests):
    result = run_tests("""
        from gradscope.errors import GradscopeError

        @pytest.mark.gradscope
        def test_swallows(gradscope):
            with pytest.raises(GradscopeError):
                gradscope.check(HEALTHY, BATCH[0])  # no loss
    """)
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["*without having checked*"])


def test_plain_function_counts_where_the_marker_says_nothing_else(run_tests):
    result = run_tests("""
        from gradscope.testing import assert_gradients_healthy

        @pytest.mark.gradscope
        def test_bare():
            assert_gradients_healthy(HEALTHY, BATCH, mse_loss)

        @pytest.mark.gradscope(max_norm=1e-9)
        def test_limited():
            assert_gradients_healthy(HEALTHY, BATCH, mse_loss)
    """)
    result.assert_outcomes(passed=1, failed=1)
    result.stdout.fnmatch_lines(["test_limited checked no gradient as its marker says (max_norm)*"])


def test_checks_of_fixtures_and_subtests_count(run_tests):
    result = run_tests(
        """
        pytestmark = pytest.mark.gradscope

        @pytest.fixture
        def checked(gradscope): return gradscope.check(HEALTHY, BATCH, mse_loss)

        def test_fixture(checked): pass

        def test_subtest(gradscope, subtests):
            with subtests.test("nothing yet"): pass
            with subtests.test("now"): gradscope.check(HEALTHY, BATCH, mse_loss)

        def test_empty_subtest(subtests):
            with subtests.test("nothing"): pass
        """,
        "--gradscope",
    )
    outcomes = result.parseoutcomes()
    assert (outcomes["passed"], outcomes["failed"]) == (2, 1)
    result.stdout.fnmatch_lines(["passed  test_it.py::test_fixture *", "2 checks, all passed: *"])


def test_shared_models_and_unittest(run_tests):
    result = run_tests("""
        import unittest
        from gradscope.testing import assert_gradients_healthy

        @pytest.fixture(scope="module")
        def model(): return nn.Linear(4, 4)

        @pytest.fixture(scope="class")
        def batch(): return BATCH

        class TestShared:
            @pytest.mark.parametrize("time", range(2))
            def test_model(self, gradscope, model, batch, time):
                gradscope.check(model, batch, mse_loss)
                assert model.weight.grad is None

        class Case(unittest.TestCase):
            def test_function(self):
                assert_gradients_healthy(HEALTHY, BATCH, mse_loss)

            def test_failure(self):
                assert_gradients_healthy(CUT, BATCH, mse_loss)

        @pytest.mark.gradscope(max_norm=1e-9)
        class Limited(unittest.TestCase):
            @pytest.fixture(autouse=True)
            def _fixture(self, gradscope): self.gradscope = gradscope

            def test_limit(self):
                with self.assertRaises(AssertionError):
                    self.gradscope.check(HEALTHY, BATCH, mse_loss)

            def test_forgot(self):
                pass
    """)
    result.assert_outcomes(passed=4, failed=2)


# Mistakes in the marker


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("max_nrom=3", "has no argument `max_nrom`: did you mean `max_norm`?"),
        ("colour=3", "has no argument `colour`: it has select, ignore, max_norm, *"),
        ("10.0", "takes named arguments only: select, *"),
    ],
)
def test_wrong_argument_is_an_error_of_usage_that_names_the_test(run_tests, arguments, message):
    result = run_tests(f"""
        class TestClass:
            @pytest.mark.gradscope({arguments})
            def test_wrong(self, gradscope): pass
    """)
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    place = "ERROR: test_it.py::TestClass::test_wrong: pytest.mark.gradscope "
    result.stderr.fnmatch_lines([place + message.replace("[", "[[]")])


def test_wrong_value_fails_the_test_with_a_line(run_tests):
    result = run_tests("""
        @pytest.mark.gradscope(select=["GS999"])
        def test_wrong(gradscope): gradscope.check(HEALTHY, BATCH, mse_loss)
    """)
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["E  *GradscopeError: no rule `GS999`*"])


def test_marker_is_listed(run_tests):
    run_tests("", "--markers").stdout.fnmatch_lines(["@pytest.mark.gradscope(select=..., *"])
