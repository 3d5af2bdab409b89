"""Every rule is listed, says all that it has to say, and has a sample and a test."""

import ast
import dataclasses
import importlib
import inspect
import pkgutil
import re
from pathlib import Path

import gradscope.rules
from gradscope.rules.catalogue import CANDIDATES, RULES
from gradscope.rules.manual import headings_of, manual_of
from gradscope.rules.rule import FAMILIES, Rule, family_of

ROOT = Path(__file__).parents[2]
CODES = [rule.code for rule in RULES]


def each_rule(check):
    """Make one test of a check of each rule: as many tests take longer than what they test."""

    def test():
        for rule in RULES:
            try:
                check(rule)
            except Exception as error:
                error.add_note(rule.code)
                raise

    test.__doc__ = check.__doc__
    return test


def defined_rules():
    for module in pkgutil.walk_packages(gradscope.rules.__path__, "gradscope.rules."):
        for _, kind in inspect.getmembers(importlib.import_module(module.name), inspect.isclass):
            if issubclass(kind, Rule) and not inspect.isabstract(kind):
                yield kind


def test_every_rule_is_listed():
    assert {kind.__name__ for kind in defined_rules()} == {rule.__name__ for rule in RULES}


def test_codes_are_unique_and_ascend():
    assert sorted(set(CODES)) == CODES
    assert len({rule.name for rule in RULES}) == len(RULES)


@each_rule
def test_code_name_and_level_are_well_formed(rule):
    assert re.fullmatch(r"GS[1-9]\d\d", rule.code)
    assert rule.code[:3] in FAMILIES
    assert re.fullmatch(r"[a-z0-9]+(-[a-z0-9]+)*", rule.name)
    assert rule.name not in FAMILIES.values()
    assert rule.level in ("error", "warning", "note")


@each_rule
def test_rule_lies_in_the_package_of_its_family(rule):
    assert rule.__module__.startswith(f"gradscope.rules.{family_of(rule.code)}.")
    assert rule.__name__.lower() == rule.name.replace("-", "")


@each_rule
def test_manual_is_complete(rule):
    manual = manual_of(rule)
    assert manual.summary.endswith(".") and len(manual.summary) <= 100
    expected = headings_of(rule)
    assert tuple(section.heading for section in manual.sections) == expected
    assert ("Fix safety" in expected) == (rule.fix is not None)
    assert all(section.text.endswith((".", "`", ")")) for section in manual.sections)
    assert all(threshold.text for threshold in manual.thresholds)


@each_rule
def test_fix_is_in_its_module(rule):
    if rule.fix is None:
        return
    package = rule.__module__.rpartition(".")[0]
    module = importlib.import_module(f"{package}.{rule.fix.module}")
    function = getattr(module, rule.fix.function or rule.name.replace("-", "_"))
    assert list(inspect.signature(function).parameters) == ["fix"]


@each_rule
def test_thresholds_are_numbers_with_a_default(rule):
    for field in dataclasses.fields(rule):
        assert type(field.default) in (int, float), field.name


@each_rule
def test_explained_codes_are_codes_or_prefixes(rule):
    for code in rule.explains:
        assert re.fullmatch(r"GS[1-9]\d{0,2}", code)
        assert code != rule.code


def explains(cause, other):
    return other is not cause and other.code.startswith(tuple(cause.explains) or ("-",))


def test_explanations_make_no_circle():
    """Rules of a circle would explain all their findings away, and none would be reported.

    Two rules that each explain the other are left alone by the engine.
    """

    def follow(rule, path):
        assert rule not in path, [one.code for one in (*path, rule)]
        for other in RULES:
            if explains(rule, other) and not explains(other, rule):
                follow(other, (*path, rule))

    for rule in RULES:
        follow(rule, ())


@each_rule
def test_rule_has_a_sample_and_a_test(rule):
    name = rule.name.replace("-", "_")
    sample = ROOT / manual_of(rule).sample
    assert sample == ROOT / "sample_models" / f"{name}.py"
    assert sample.is_file()
    folder = ROOT / "tests" / "rules" / family_of(rule.code)
    assert list(folder.rglob(f"test_{name}.py"))


@each_rule
def test_every_rule_says_what_it_looks_for(rule):
    assert CANDIDATES[rule]


@each_rule
def test_every_rule_with_thresholds_shows_the_numbers_that_it_compares(rule):
    """A rule with fields notes its comparisons, for `gradscope rule CODE --why`."""
    if dataclasses.fields(rule):
        modules = {kind.__module__ for kind in rule.__mro__[: rule.__mro__.index(Rule)]}
        sources = map(inspect.getsource, map(importlib.import_module, modules))
        nodes = (node for source in sources for node in ast.walk(ast.parse(source)))
        called = {node.func.attr for node in nodes if _is_method_call(node)}
        assert called & {"measured", "measured_share"}


def _is_method_call(node):
    return isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute)
