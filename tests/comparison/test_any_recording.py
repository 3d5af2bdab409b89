"""Recordings as nobody thought of them, compared with each other."""

import json
from importlib.resources import files

import jsonschema
import pytest
from hypothesis import given

from gradscope.comparison.parameters import WORSE
from gradscope.errors import GradscopeError
from tests.comparison.sides import changes, compared
from tests.report.comparison.test_formats import TEXTS, rendered
from tests.report.run.test_any_run import recordings

SCHEMA = json.loads(files("gradscope").joinpath("schemas/compare-1.json").read_text())


@given(recordings(), recordings())
def test_any_two_runs_can_be_compared(first, second):
    try:
        comparison = compared(first, second)
    except GradscopeError as error:
        assert "nothing to compare" in error.what
        return
    for name in TEXTS:
        assert "\x1b" not in rendered(comparison, name)
    value = json.loads(rendered(comparison, "json"))
    jsonschema.Draft202012Validator(SCHEMA).validate(value)


@pytest.mark.nightly
@given(recordings())
def test_any_run_is_as_good_as_itself(recording):
    try:
        comparison = compared(recording, recording)
    except GradscopeError:
        return
    assert not {*changes(comparison).values()} & {*WORSE}
    assert comparison.verdict.regressions == ()
