"""From names on the command line to targets with all that is known of how to run them."""

from pathlib import Path

import pytest

from gradscope.check.options import BaselineOptions, PlannedTarget, Policy
from gradscope.config import keys, plan_targets, read_configuration
from gradscope.errors import GradscopeError
from gradscope.options.declaration import declarations
from gradscope.target.options import TargetOptions, Trial

TARGETS = """
[tool.gradscope]
seeds = 3
seed = 7
device = "cuda"
lr = 1

[tool.gradscope.targets]
small = "model.py:Net(hidden=8)"

[tool.gradscope.targets.large]
target = "package.module"
seed = 11
batch = "made"
"""


def planned(given=(), **overrides):
    return plan_targets(
        read_configuration(),
        given,
        {name.replace("_", "-"): value for name, value in overrides.items()},
    )


def test_every_key_reaches_the_plan(project):
    project(
        """
        [tool.gradscope]
        fail-level = "note"
        max-warnings = 3
        baseline = "ci/known.json"
        baseline-tolerance = 1.5
        strict-baseline = true
        output-format = "markdown"

        [tool.gradscope.targets.one]
        target = "model.py"
        model = "Net(3)"
        input = "8,3"
        loss = "mse"
        checkpoint = "w.pt"
        args = ["--x", ""]
        seeds = 2
        seed = -5
        steps = 4
        optimizer = "AdamW"
        lr = 1e-2
        probe-steps = 0
        timeout = 2.5
        device = "cuda:1"
        dtype = "torch.bfloat16"
        mode = "eval"
        eager = true

        [tool.gradscope.targets]
        two = { target = "m", batch = "b.pt", grad-output = "ones" }
        three = { target = "m", input = ["a=3", "b=4"] }
        """
    )
    found = read_configuration()
    assert found.policy == Policy(fail_level="note", max_warnings=3)
    assert found.baseline == BaselineOptions(
        file=Path.cwd() / "ci/known.json",
        tolerance=1.5,
        is_strict=True,
        targets=("one", "two", "three"),
    )
    assert found.output_format == "markdown"
    one, two, three = plan_targets(found, (), {})
    assert one == PlannedTarget(
        name="one",
        spec="model.py",
        folder=Path.cwd(),
        options=TargetOptions(
            model="Net(3)",
            inputs=("8,3",),
            loss="mse",
            checkpoint="w.pt",
            args=("--x", ""),
            seed=-5,
            device="cuda:1",
            dtype="torch.bfloat16",
            mode="eval",
            eager=True,
            allow_guesses=False,
        ),
        trial=Trial(steps=4, optimizer="AdamW", lr=1e-2, probe_steps=0),
        seeds=2,
        timeout=2.5,
    )
    assert (two.options.batch, two.options.grad_output) == ("b.pt", "ones")
    assert three.options.inputs == ("a=3", "b=4")


def test_targets_without_a_configuration_are_as_written(project):
    (found,) = planned(("model.py:Net",), steps=5, args=("--epochs", "1"))
    assert found == PlannedTarget(
        name="model.py:Net",
        spec="model.py:Net",
        folder=Path.cwd(),
        options=TargetOptions(args=("--epochs", "1"), allow_guesses=False),
        trial=Trial(steps=5),
    )


def test_micro_batches_are_two_or_more(project):
    project("[tool.gradscope]\nmicro-batches = 4\n[tool.gradscope.targets]\nsmall = 'model.py'")
    (small,) = planned()
    assert small.trial.micro_batches == 4
    (small,) = planned(("small",), micro_batches=8)
    assert small.trial.micro_batches == 8
    with pytest.raises(GradscopeError, match=r"^--micro-batches has to be at least 2, and is 1$"):
        planned(("model.py",), micro_batches=1)


def test_command_line_wins_over_table_over_top_level_over_default(project):
    project(TARGETS)
    small, large = planned()
    assert (small.seeds, small.options.seed, small.options.device) == (3, 7, "cuda")
    assert (large.seeds, large.options.seed, large.options.device) == (3, 11, "cuda")
    assert (large.trial.lr, large.trial.steps, large.options.mode) == (1.0, 0, "train")
    small, large = planned(seed=1, steps=2, device="cpu")
    assert (small.options.seed, large.options.seed) == (1, 1)
    assert {(item.trial.steps, item.options.device) for item in (small, large)} == {(2, "cpu")}
    (written,) = planned(("other.py",))
    assert (written.seeds, written.options.seed, written.options.device) == (3, 7, "cuda")


def test_names_choose_among_the_configured_targets(project):
    project(TARGETS)
    assert [item.name for item in planned()] == ["small", "large"]
    assert [item.name for item in planned(("large",))] == ["large"]
    assert [item.name for item in planned(("large", "x.py", "small", "large"))] == [
        "large",
        "x.py",
        "small",
    ]


def test_configured_targets_run_in_the_folder_of_the_file(project):
    project(TARGETS, "../pyproject.toml")
    folder = Path.cwd().parent
    small, written = planned(("small", "model.py"))
    assert (small.folder, written.folder) == (folder, Path.cwd())
    assert (small.spec, written.spec) == ("model.py:Net(hidden=8)", "model.py")
    project('[tool.gradscope]\nbaseline = "known.json"', "../pyproject.toml")
    assert read_configuration().baseline.file == folder / "known.json"


def test_paths_of_the_command_line_stay_relative_to_the_working_directory(project):
    project(TARGETS, "../pyproject.toml")
    Path("b.pt").touch()
    cwd = Path.cwd()
    (small,) = planned(("small",), batch="b.pt", checkpoint="w.pt", grad_output="ones")
    assert small.options.batch == str(cwd / "b.pt")
    assert small.options.checkpoint == str(cwd / "w.pt")
    assert small.options.grad_output == "ones"
    (small,) = planned(("small",), batch="make_batch(3)")
    assert small.options.batch == "make_batch(3)"
    (written,) = planned(("model.py",), batch="b.pt")
    assert written.options.batch == "b.pt"


def test_what_excludes_a_configured_value_takes_its_place(project):
    project(TARGETS)
    (large,) = planned(("large",), input=("3,4",))
    assert (large.options.batch, large.options.inputs) == (None, ("3,4",))
    (large,) = planned(("large",), batch="other")
    assert (large.options.batch, large.options.inputs) == ("other", ())


@pytest.mark.parametrize("position", ["small", "small.py", "small/__init__.py"])
def test_plain_name_is_the_configured_target_whatever_files_there_are(position, project):
    project(TARGETS)
    Path(position).parent.mkdir(exist_ok=True)
    Path(position).touch()
    (found,) = planned(("small",))
    assert found.spec == "model.py:Net(hidden=8)"
    (found,) = planned((f"./{position}",))
    assert found.spec == f"./{position}"


def test_misspelt_name_is_an_error_unless_it_is_something_else(project):
    project(TARGETS)
    with pytest.raises(GradscopeError) as caught:
        planned(("smal",))
    assert (
        caught.value.what
        == "no target `smal`: it is not configured, and is neither a file nor a module"
    )
    assert caught.value.help == "did you mean `small`?"
    for text in ("smal.py", "./smal", "smal:Net", "other"):
        assert [item.spec for item in planned((text,))] == [text]
    for position in ("smal", "smal.py"):
        Path(position).touch()
        assert [item.spec for item in planned(("smal",))] == ["smal"]
        Path(position).unlink()


def test_installed_module_is_no_misspelt_name(project):
    project('[tool.gradscope.targets]\njsonn = "model.py"')
    assert [item.spec for item in planned(("json",))] == ["json"]


def test_without_any_target_there_is_nothing_to_run(project):
    with pytest.raises(GradscopeError) as caught:
        planned()
    assert caught.value.what == "no target given, and no pyproject.toml configures one"
    assert "[tool.gradscope.targets]" in caught.value.help
    file = project("[tool.gradscope]\nseeds = 3").absolute()
    with pytest.raises(GradscopeError) as caught:
        planned()
    assert caught.value.what.endswith(f"and no [tool.gradscope.targets] in {file}")


def test_options_of_the_command_line_are_checked_too(project):
    with pytest.raises(GradscopeError) as caught:
        planned(("model.py",), dtype="bfloat61")
    assert caught.value.what.startswith("--dtype has to be one of float16, ")
    assert caught.value.help == "did you mean `bfloat16`?"
    with pytest.raises(GradscopeError, match=r"^--probe-steps has to be at least 0, and is -1$"):
        planned(("model.py",), probe_steps=-1)


def test_every_option_on_running_a_target_has_a_key_and_the_other_way_round():
    options = {key for kind in (TargetOptions, Trial, PlannedTarget) for key in declarations(kind)}
    assert options | {"args", "target"} == set(keys.OF_TARGET)
