"""Every finding has at most one entry, and the likest."""

from hypothesis import given
from hypothesis import strategies as st

from gradscope.check.baseline_file import Entry
from gradscope.check.baseline_matching import paired
from gradscope.recording.finding import Finding
from gradscope.rules.fingerprint import subjects


def finding(rule, *parameters, fingerprint="f"):
    return Finding(
        rule=rule,
        name="n",
        severity="error",
        message="m",
        location=None,
        parameters=parameters,
        remedy="r",
        fingerprint=fingerprint,
    )


def entry(rule, *parameters, fingerprint="f"):
    return Entry(
        target="t",
        rule=rule,
        name="n",
        fingerprint=fingerprint,
        subjects=subjects(parameters),
        level="error",
        count=1,
    )


def pairs(findings, entries):
    return dict(paired(findings, entries))


def test_the_same_parameters_come_before_some_of_the_same_and_those_before_the_line():
    findings = [finding("GS101", "x.w"), finding("GS101", "a.w", "b.w"), finding("GS101", "b.w")]
    entries = [entry("GS101", "b.w"), entry("GS101", "z.w"), entry("GS101", "b.w", "c.w")]
    assert pairs(findings, entries) == {0: 1, 1: 2, 2: 0}


def test_other_parameters_are_another_cause_where_they_are_what_is_wrong():
    for code in ("GS105", "GS106", "GS203"):
        assert pairs([finding(code, "late.w")], [entry(code, "early.w")]) == {}
    assert pairs([finding("GS101", "late.w")], [entry("GS101", "early.w")]) == {0: 0}
    assert pairs([finding("GS203")], [entry("GS203", "early.w")]) == {0: 0}


def test_names_with_a_wrapper_around_or_cut_to_their_module_are_the_same():
    for name in ("module.body.fc.w", "_orig_mod.body.fc.w", "body", "fc.w"):
        assert pairs([finding("GS203", "body.fc.w")], [entry("GS203", name)]) == {0: 0}
    assert pairs([finding("GS203", "body.fc.w")], [entry("GS203", "body2.fc2.w")]) == {}


MARKS = st.tuples(
    st.sampled_from(["GS105", "GS203"]),
    st.sampled_from(["a.0.w", "a.1.w", "b.w", "module.b.w", "c"]),
    st.sampled_from(["f", "g"]),
)


def of(kind, marks):
    return [kind(rule, name, fingerprint=mark) for rule, name, mark in marks]


@given(st.lists(MARKS, max_size=8), st.lists(MARKS, max_size=8))
def test_pairs_are_one_to_one_and_share_rule_and_fingerprint(found, known):
    findings, entries = of(finding, found), of(entry, known)
    matched = list(paired(findings, entries))
    assert len({position for position, _ in matched}) == len(matched)
    assert len({position for _, position in matched}) == len(matched)
    for one, other in matched:
        assert findings[one].rule == entries[other].rule
        assert findings[one].fingerprint == entries[other].fingerprint


@given(st.lists(MARKS, max_size=8), st.randoms())
def test_what_is_known_is_found_again_in_any_order(found, chance):
    known = chance.sample(found, len(found))
    assert len(pairs(of(finding, found), of(entry, known))) == len(found)
