"""Every rule, ascending by code."""

from gradscope.rules.gradient_cut import GradientCut
from gradscope.rules.non_differentiable_operation import NonDifferentiableOperation
from gradscope.rules.rule import Rule

RULES: tuple[type[Rule], ...] = (
    GradientCut,
    NonDifferentiableOperation,
)
