"""`-q`, and the command that a report names as the next."""

import json
import re
import shlex
from pathlib import Path

import pytest

from tests.nightly import some_on_push

ROOT = Path(__file__).parents[2]
SICK, HEALTHY = (f"sample_models/{name}.py" for name in ("gradient_cut", "healthy_mlp"))


@pytest.fixture(scope="module")
def recorded(tmp_path_factory, gradscope_in):
    """The recordings of a sick and of a healthy model."""
    folder = tmp_path_factory.mktemp("recorded")
    files = [folder / "sick.gradscope", folder / "healthy.gradscope"]
    for model, file in zip((SICK, HEALTHY), files, strict=True):
        assert gradscope_in(ROOT, "inspect", model, "-q", "--save", file).returncode == 0
    return files


@pytest.mark.parametrize(
    "arguments",
    [
        ("report", "SICK"),
        ("compare", "HEALTHY", "SICK"),
        pytest.param(
            ("clip-report", ROOT / "sample_models" / "exploding_gradient.py"),
            marks=pytest.mark.nightly,
        ),
        pytest.param(
            ("run", ROOT / "sample_models" / "clip_after_step.py"), marks=pytest.mark.nightly
        ),
    ],
    ids=lambda arguments: arguments[0],
)
def test_quiet_shows_findings_and_the_last_line(recorded, tmp_path, gradscope_in, arguments):
    named = dict(zip(("SICK", "HEALTHY"), recorded, strict=True))
    command, *others = (str(named.get(word, word)) for word in arguments)
    whole, quiet = (
        gradscope_in(tmp_path, command, *options, *others, COLUMNS="100")
        for options in ((), ("-q",))
    )
    told, brief = (
        [line for line in (one.stdout + one.stderr).splitlines() if line] for one in (whole, quiet)
    )
    findings = [line for line in told if re.search(r"\[GS\d{3}\] ", line)]
    assert findings == [line for line in brief if re.search(r"\[GS\d{3}\] ", line)] != []
    assert brief[0] in (findings[0], "new in B:")
    assert len(brief) < len(told)
    assert brief[-1].split(",")[0] in " ".join(told[-3:])
    assert not [line for line in brief if line.startswith(("note:", "Not applicable"))]
    assert whole.returncode == quiet.returncode


def test_quiet_of_a_healthy_model_is_one_line(gradscope_in):
    result = gradscope_in(ROOT, "inspect", HEALTHY, "-q")
    assert result.stdout.strip().startswith("No findings")
    assert len(result.stdout.strip().splitlines()) == 1
    assert result.stderr == ""


def test_quiet_shows_the_result_of_a_training_on_one_batch(gradscope_in):
    whole, quiet = (
        gradscope_in(ROOT, "inspect", HEALTHY, "--overfit", "5", *more, COLUMNS="140").stdout
        for more in ((), ("-q",))
    )
    result = re.search(r"^ *result +(.+)$", whole, re.MULTILINE)[1]
    assert quiet.splitlines()[0] == f"One batch: {result}."


@pytest.mark.nightly
@pytest.mark.parametrize("model", some_on_push([SICK, HEALTHY], 2))
def test_the_next_command_runs(gradscope_in, model):
    result = gradscope_in(ROOT, "inspect", model, "--output-format", "json")
    shown = json.loads(result.stdout)["next"]
    program, *arguments = shlex.split(shown)
    assert program == "gradscope"
    following = gradscope_in(ROOT, *arguments)
    assert (following.returncode, following.stderr) == (0, "")
    expected = "gradient-cut" if model == SICK else "overfit"
    assert expected in following.stdout.partition("\n\n")[0] + shown


def test_concise_and_json_name_the_same_command(recorded, gradscope_in):
    sick, _ = recorded
    lines = gradscope_in(ROOT, "report", sick, "--output-format", "concise").stdout.splitlines()
    whole = json.loads(gradscope_in(ROOT, "report", sick, "--output-format", "json").stdout)
    assert lines[-1] == f"next: {whole['next']}" == "next: gradscope rule GS201"
