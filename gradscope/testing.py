"""Gradients in tests: fails where a rule finds what is wrong with them.

Works in every test runner; pytest's fixture `gradscope` and its marker stand on it. It needs no
pytest.
"""

from gradscope.integrations.assertions import UnhealthyGradientsError, assert_gradients_healthy

__all__ = ["UnhealthyGradientsError", "assert_gradients_healthy"]
