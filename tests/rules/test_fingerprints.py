"""A finding keeps its fingerprint through everything that is no other cause."""

import shutil
from dataclasses import replace
from itertools import count
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gradscope.recording.finding import Finding
from gradscope.recording.records import Site
from gradscope.rules.context import RuleContext
from gradscope.rules.fingerprint import portable_path, subjects, unique_fingerprints
from gradscope.rules.flow.dead_unit import DeadUnit
from gradscope.rules.reach.gradient_cut import GradientCut
from tests.nightly import some_on_push
from tests.report.conftest import build
from tests.rules.inspecting import report_of_file

SAMPLES = Path(__file__).parents[2] / "sample_models"
_NUMBERS = count()


@pytest.fixture
def fingerprint(tmp_path, monkeypatch):
    """The fingerprint of the only finding in a text, in a checkout of its own each time."""

    def find(text, folder=".", cwd="."):
        repository = tmp_path / f"checkout{next(_NUMBERS)}"
        (repository / ".git").mkdir(parents=True)
        (repository / cwd).mkdir(parents=True, exist_ok=True)
        path = repository / folder / "model.py"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        monkeypatch.chdir(repository / cwd)
        (found,) = report_of_file(path).findings
        shutil.rmtree(repository)
        return found.fingerprint

    return find


def sample(name):
    return (SAMPLES / f"{name}.py").read_text()


CALL = "        for layer in self.hidden:\n            x = torch.sigmoid(layer(x))  # GS102"
OPTIMIZER = "    return torch.optim.SGD(model.parameters(), lr=3.0)  # GS108"
LOSS = '    return functional.cross_entropy(output["out"], target)  # GS203'

SAME = {
    "lines above": ("vanishing_gradient", CALL, f"        x = x * 1\n\n\n{CALL}"),
    "deeper": (
        "vanishing_gradient",
        CALL,
        "        if x.dim():\n            for layer in self.hidden:\n"
        "                x = torch.sigmoid(layer(x))",
    ),
    "comment": ("vanishing_gradient", "# GS102", "# noqa: E501  (it is known)"),
    "spaces": ("vanishing_gradient", "sigmoid(layer(x))", "sigmoid( layer( x ) )"),
    "line breaks": (
        "vanishing_gradient",
        "torch.sigmoid(layer(x))",
        "torch.sigmoid(\n                layer(x),\n            )",
    ),
    "backslash": (
        "vanishing_gradient",
        "x = torch.sigmoid(",
        "x = \\\n                torch.sigmoid(",
    ),
    "quotes and parentheses": (
        "unused_parameter",
        LOSS,
        "    return (\n        functional.cross_entropy(output['out'], target)\n    )",
    ),
    "number": ("update_too_large", "lr=3.0", "lr=4.5"),
    "argument a line": (
        "update_too_large",
        OPTIMIZER,
        "    return torch.optim.SGD(\n        model.parameters(),\n        lr=3e0,\n    )",
    ),
    "seed": ("unused_parameter", "torch.manual_seed(0)", "torch.manual_seed(31)"),
    "size": ("unused_parameter", "nn.Conv2d(8, 3, 1)", "nn.Conv2d(8, 5, 1)"),
}


@pytest.mark.parametrize(
    "edit", some_on_push([pytest.param(edit) for edit in SAME.values()], 4), ids=SAME
)
def test_edits_that_are_no_other_cause_change_nothing(fingerprint, edit):
    name, old, new = edit
    text = sample(name)
    assert old in text
    assert fingerprint(text.replace(old, new)) == fingerprint(text)


OTHER = {
    "call": ("vanishing_gradient", "torch.sigmoid(layer(x))  #", "layer(x).sigmoid()  #"),
    "class": ("vanishing_gradient", "Classifier", "Regressor"),
    "argument": ("update_too_large", "torch.optim.SGD(", "torch.optim.SGD(maximize=False, params="),
}


@pytest.mark.parametrize(
    "edit", some_on_push([pytest.param(edit) for edit in OTHER.values()], 3), ids=OTHER
)
def test_other_code_is_another_cause(fingerprint, edit):
    name, old, new = edit
    text = sample(name)
    assert old in text
    assert fingerprint(text.replace(old, new)) != fingerprint(text)


@pytest.mark.nightly
def test_the_working_directory_does_not_count_but_the_file_does(fingerprint):
    text = sample("vanishing_gradient")
    nested = fingerprint(text, folder="src/net")
    assert fingerprint(text, folder="src/net", cwd="src/net") == nested
    assert fingerprint(text, folder="src/net", cwd="other") == nested
    assert fingerprint(text, folder="src/other") != nested


def test_the_first_seeds_of_a_sample_show_one_cause(fingerprint):
    text = sample("dead_unit")
    assert "manual_seed(0)" in text
    found = {fingerprint(text.replace("manual_seed(0)", f"manual_seed({n})")) for n in range(4)}
    assert len(found) == 1


@pytest.mark.parametrize(
    ("file", "shown"),
    [
        ("/repo/src/model.py", "src/model.py"),
        ("/repository/model.py", "model.py"),
        ("/elsewhere/net.py", "net.py"),
        ("/repo/.venv/lib/python3.12/site-packages/timm/layers.py", "timm/layers.py"),
        ("/usr/lib/python3/dist-packages/timm/layers.py", "timm/layers.py"),
        ("/usr/lib/python3.13/functools.py", "functools.py"),
        ("/root/.local/uv/cpython-3.11/lib/python3.11/json/decoder.py", "json/decoder.py"),
        ("<stdin>", "<stdin>"),
        ("<string>", "<string>"),
        ("<eval_with_key>.17", "<eval_with_key>"),
        ("<ipython-input-7-0c1e5b2f>", "<notebook>"),
        ("/tmp/ipykernel_4242/1893045.py", "<notebook>"),
        ("/tmp/ipython-input-3-1893045.py", "<notebook>"),
        (r"C:\Users\me\AppData\Local\Temp\ipykernel_77\123456.py", "<notebook>"),
        ("/tmp/tmpab12_cd9/model.py", "model.py"),
        ("/tmp/tmpab12_cd9.py", "<generated>"),
        ("/tmp/torchinductor_me/xy/cxy4dbe7f0a1b2c3.py", "<generated>"),
        ("", ""),
    ],
)
def test_files_are_the_same_on_every_machine(file, shown):
    assert portable_path(file, "/repo") == shown


def test_paths_of_windows_and_of_temporary_checkouts_are_the_same_too():
    assert portable_path(r"C:\work\repo\src\model.py", r"c:\work\repo") == "src/model.py"
    assert portable_path("/tmp/tmpq1w2e3r4/src/model.py", "/tmp") == "src/model.py"
    assert portable_path("/repo/model.py", "") == "model.py"


def test_layers_of_a_kind_concern_the_same_and_other_names_do_not():
    assert subjects(["h.11.fc1.weight", "h.2.fc1.weight"]) == ("h.*.fc1.weight",)
    assert subjects(["h.0.fc1.weight"]) != subjects(["h.0.fc2.weight"])
    assert subjects(["", "head"]) == ("head",)
    many = [f"body.{kind}{number}.weight" for kind in "ab" for number in range(20)]
    assert subjects(many) == ("body",)


@pytest.fixture
def found_by():
    """The fingerprint of a finding of a rule in a small recording of this model."""

    def find(rule=GradientCut, model="Net", **given):
        recording = build()
        context = RuleContext(replace(recording, target=replace(recording.target, model=model)))
        given = {"site": None, "message": "m", "remedy": "r"} | given
        return rule().finding(context, **given).fingerprint

    return find


def test_without_a_line_the_rule_and_the_model_tell(found_by):
    plain = found_by()
    assert found_by(parameters=[0, 2], message="n", evidence={"n": 3}) == plain
    assert found_by(model="Other") != plain
    assert found_by(rule=DeadUnit) != plain


def test_a_named_cause_takes_the_place_of_the_line(found_by):
    assert found_by(cause="c", site=0) == found_by(cause="c", site=2) != found_by(site=0)
    assert found_by(cause="c") != found_by(cause="d")


def test_one_line_has_a_fingerprint_for_each_rule_and_each_line_one_of_its_own(found_by):
    assert found_by(site=0) != found_by(site=0, rule=DeadUnit)
    assert found_by(site=0) != found_by(site=2)


@pytest.mark.parametrize(
    ("function", "same"),
    [
        ("Net.forward.<locals>.<listcomp>", "Net.forward"),
        ("Net.torch_dynamo_resume_in_forward_at_31", "Net.forward"),
        ("torch_dynamo_resume_in_forward_at_31", "torch_dynamo_resume_in_forward_at_44"),
    ],
)
def test_functions_are_named_alike_by_all_versions_of_python_and_the_compiler(
    found_by, function, same
):
    sites = [Site(file="/a.py", line=1, function=name, source="s") for name in (function, same)]
    one, other = (found_by(site=site) for site in sites)
    assert one == other


def finding(fingerprint, *parameters, message="m"):
    return Finding(
        rule="GS203",
        name="unused-parameter",
        severity="warning",
        message=message,
        location=None,
        parameters=parameters,
        remedy="r",
        fingerprint=fingerprint,
    )


def test_findings_of_one_line_stay_apart_and_the_first_keeps_its_fingerprint():
    first, second = finding("f", "a.weight"), finding("f", "b.weight")
    alone = unique_fingerprints([first])
    both = unique_fingerprints([second, first])
    assert alone == ("f",)
    assert both[1] == "f" != both[0]
    third = finding("f", "c.weight")
    assert unique_fingerprints([third, second, first])[1:] == both


def test_of_lines_that_read_the_same_the_upper_one_keeps_its_fingerprint():
    upper, lower = (
        replace(
            finding("f", f"{n}.weight"),
            location=Site(file="/a.py", line=n, function="f", source="x = relu(x)"),
            severity=severity,
        )
        for n, severity in ((3, "note"), (9, "error"))
    )
    assert unique_fingerprints([lower, upper])[1] == "f"
    assert unique_fingerprints([upper, lower])[0] == "f"


@given(
    st.lists(
        st.builds(
            finding,
            st.sampled_from(["f", "g"]),
            st.sampled_from(["a.0.w", "a.1.w", "b", "c.w"]),
            message=st.sampled_from(["m", "n"]),
        ),
        max_size=12,
    )
)
def test_no_two_findings_share_a_unique_fingerprint(findings):
    unique = unique_fingerprints(findings)
    assert len(set(unique)) == len(findings)
    assert {one.fingerprint for one in findings} <= set(unique)
    backwards = unique_fingerprints(findings[::-1])
    assert set(backwards) == set(unique)
