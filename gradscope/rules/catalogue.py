"""Every rule, ascending by code."""

from gradscope.rules.rule import Rule

RULES: tuple[type[Rule], ...] = ()
