"""Gradient checks for tests: they fail if a rule reports a problem.

The assertion works in every test runner and does not need pytest. pytest's fixture `gradscope` and
its marker use it.
"""

from gradscope.integrations.assertions import UnhealthyGradientsError, assert_gradients_healthy

__all__ = ["UnhealthyGradientsError", "assert_gradients_healthy"]
