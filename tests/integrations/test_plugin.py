"""The fixture `gradscope`, and the checks that a marked test requires."""

import pytest

from tests.nightly import some_on_push


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


@pytest.mark.parametrize("level", some_on_push(["note", "error"], 2))
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
        ["test_forgot passed without a gradient check*gradscope.check(model, *"]
    )
    result.stdout.fnmatch_lines(["FAILED test_it.py::test_branch?False? - *passed without*"])


def test_steps_of_the_marker_and_a_loader(run_tests):
    result = run_tests("""
        from torch.utils.data import DataLoader, TensorDataset

        @pytest.mark.gradscope(steps=2)
        def test_training(gradscope):
            report = gradscope.check(HEALTHY, DataLoader(TensorDataset(*BATCH), 4), mse_loss)
            assert report.target.batch == "float32[4, 4], float32[4, 4]"
            assert [one.kind for one in report.recording.steps].count("training") == 2
    """)
    result.assert_outcomes(passed=1)


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
    result.stdout.no_fnmatch_line("*without a gradient check*")


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
    result.stdout.fnmatch_lines(["*without a gradient check*"])


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
    result.stdout.fnmatch_lines(
        ["test_limited made no check with its marker's options (max_norm)*"]
    )


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

        @pytest.mark.gradscope
        def test_empty_subtest(subtests):
            with subtests.test("nothing"): pass
        """,
        "--gradscope",
    )
    outcomes = result.parseoutcomes()
    assert (outcomes["passed"], outcomes["failed"]) == (2, 1)
    result.stdout.fnmatch_lines(
        ["passed  test_it.py::test_fixture *", "2 checks, all passed, 1 test failed otherwise: *"]
    )


@pytest.mark.nightly
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
