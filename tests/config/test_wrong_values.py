"""Whatever is wrong in the file is one error that names file, line and key."""

import json
import math

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gradscope.config import configured_settings, keys, read_configuration
from gradscope.errors import GradscopeError
from tests.nightly import some_on_push

LIST = 'such as ["GS101", "reach"]'
LEVELS = "has to be one of error, warning, note"


@pytest.mark.parametrize(
    ("text", "key", "wrong", "help_text"),
    [
        ("selct = []", "selct", "is not a known option of gradscope", "did you mean `select`?"),
        ("fail_level = 1", "fail_level", "is not a known option of gradscope",
         "did you mean `fail-level`?"),
        ('select = "GS1"', "select", "has to be a list of strings", LIST),
        ("ignore = [1]", "ignore", "has to be a list of strings", LIST),
        ('ignore = ["dead-unti"]', "ignore",
         "names something unknown: no rule `dead-unti`: did you mean `dead-unit`?",
         "gradscope rule lists every rule"),
        ("rules = 3", "rules", "has to be a table", "[tool.gradscope.rules]"),
        ("rules.dead-unti.rows = 1", "rules.dead-unti", "is not a known rule",
         "did you mean `dead-unit`?"),
        ("rules.x.rows = 1", "rules.x", "is not a known rule", "gradscope rule lists every rule"),
        ("rules.GS105.rows = 1", "rules.GS105", "is the code of a rule",
         "[tool.gradscope.rules.dead-unit]"),
        ("rules.dead-unit.row = 1", "rules.dead-unit.row", "is not a known threshold of dead-unit",
         "did you mean `rows`?"),
        ("rules.gradient-cut.limit = 3", "rules.gradient-cut.limit",
         "is not a known threshold of gradient-cut", None),
        ("rules.dead-unit.rows = true", "rules.dead-unit.rows", "has to be a whole number", None),
        ("rules.dead-unit.rows = 1.5", "rules.dead-unit.rows",
         "has to be a whole number, and is 1.5", None),
        ("rules.dead-unit.rows = -1", "rules.dead-unit.rows", "has to be at least 0, and is -1",
         None),
        ("rules.dead-unit.error_share = nan", "rules.dead-unit.error_share", "has to be a number",
         None),
        ("rules.dead-unit.error_share = 1.8", "rules.dead-unit.error_share",
         "has to be a share of at most 1, and is 1.8", None),
        ("rules.dead-unit.error_share = 1", None, None, None),
        ("rules.dead-unit.error_share = inf", None, None, None),
        ("rules.exploding-gradient.note_decades = 1.8", None, None, None),
        ("rules.dead-unit.error_share = -0.1", "rules.dead-unit.error_share",
         "has to be at least 0, and is -0.1", None),
        ('per-module-ignores."encoder.*" = "GS203"', 'per-module-ignores."encoder.*"',
         "has to be a list of strings", LIST),
        ('per-module-ignores."a.*" = ["GS9999"]', 'per-module-ignores."a.*"',
         "names something unknown: no rule `GS9999`", "gradscope rule lists every rule"),
        ('fail-level = "warn"', "fail-level", f"{LEVELS}, and is `warn`",
         "did you mean `warning`?"),
        ('fail-level = "Error"', "fail-level", f"{LEVELS}, and is `Error`",
         "did you mean `error`?"),
        ("fail-level = 1", "fail-level", LEVELS, None),
        ("max-warnings = -1", "max-warnings", "has to be at least 0, and is -1", None),
        ("max-grad-norm = inf", "max-grad-norm", "has to be a finite number", None),
        (f"max-grad-norm = {10**400}", "max-grad-norm", "is too large", None),
        ("max-grad-norm = 1\nmin-grad-norm = 2", "max-grad-norm", "is below `min-grad-norm`, 2",
         None),
        ("grad-norms.a = { max = 1, min = 2 }", "grad-norms.a.max", "is below `min`, 2", None),
        ("grad-norms.a = { mx = 1 }", "grad-norms.a.mx", "is not a known limit of a gradient norm",
         "did you mean `max`?"),
        ("grad-norms.a = 3", "grad-norms.a", "has to be a table with max or min",
         "such as { max = 10.0, min = 1e-7 }"),
        ("grad-norms.a = {}", "grad-norms.a", "has neither max nor min",
         "such as { max = 10.0, min = 1e-7 }"),
        ('grad-norms."" = { max = 1 }', 'grad-norms.""', "does not name modules",
         "max-grad-norm and min-grad-norm apply to the whole model"),
        ("baseline-tolerance = 0.5", "baseline-tolerance", "has to be at least 1, and is 0.5",
         None),
        ('baseline = ""', "baseline", "is empty", None),
        ('baseline = "a\\u0000"', "baseline", "holds a null character", None),
        ('output-format = "markdwn"', "output-format", "has to be one of full, concise, ",
         "did you mean `markdown`?"),
        ("seeds = 0", "seeds", "has to be at least 1, and is 0", None),
        (f"seed = {2**63}", "seed", f"has to be at most {2**63 - 1}", None),
        (f"seeds = 0x1{'0' * 5000}", "seeds", f"has to be at most {2**63 - 1}", None),
        (f"seed = 0x1{'0' * 5000}", "seed", f"has to be at most {2**63 - 1}", None),
        (f"lr = 0x1{'0' * 5000}", "lr", "is too large", None),
        ("timeout = 0", "timeout", "has to be above 0 seconds", None),
        ("lr = nan", "lr", "has to be a number, and is nan", None),
        ('device = "cuda:"', "device", "is not a device: `cuda:`", "such as cpu, cuda or cuda:1"),
        ('dtype = "float"', None, None, None),
        ('dtype = "int64"', "dtype", "has to be one of float16, bfloat16, ", None),
        ('mode = "evl"', "mode", "has to be one of train, eval, and is `evl`",
         "did you mean `eval`?"),
        ('eager = "yes"', "eager", "has to be true or false", None),
        ('optimizer = "torch.optim.Adam"', "optimizer",
         "is not a class of torch.optim: `torch.optim.Adam`", "did you mean `Adam`?"),
        ('optimizer = "adamm"', "optimizer", "is not a class of torch.optim: `adamm`",
         "did you mean `Adam`?"),
        ('optimizer = "adam-w"', "optimizer", "is not a class of torch.optim: `adam-w`",
         "did you mean `AdamW`?"),
        ('optimizer = "1"', "optimizer", "is not a class of torch.optim: `1`",
         "such as adamw or sgd"),
        ('optimizer = "ADAMW"', None, None, None),
        ('optimizer = "Lookahead"', None, None, None),
        ('device = "gpu"', "device", "is not a device: `gpu`", "did you mean `cuda`?"),
        ('device = "gpu:1"', "device", "is not a device: `gpu:1`", "did you mean `cuda:1`?"),
        ('device = "cuda0"', "device", "is not a device: `cuda0`", "did you mean `cuda:0`?"),
        ('device = "CUDA"', "device", "is not a device: `CUDA`", "did you mean `cuda`?"),
        ('device = "npu:0"', None, None, None),
        ('device = "cuda:1"', None, None, None),
        ('dtype = "fp16"', "dtype", "has to be one of float16, ", "did you mean `float16`?"),
        ('dtype = "bf16"', "dtype", "has to be one of float16, ", "did you mean `bfloat16`?"),
        ('dtype = "torch.fp32"', "dtype", "has to be one of float16, ", "did you mean `float32`?"),
        ('dtype = "half"', None, None, None),
    ],
)  # fmt: skip
def test_errors_name_file_line_and_key(text, key, wrong, help_text, project):
    project(f"[tool.gradscope]\n{text}\n")
    if key is None:
        read_configuration()
        return
    with pytest.raises(GradscopeError) as caught:
        read_configuration()
    assert caught.value.what.startswith(f"`tool.gradscope.{key}` in pyproject.toml:2 {wrong}")
    assert caught.value.help == help_text


@pytest.mark.parametrize(
    ("text", "key", "wrong", "help_text"),
    [
        ("small = 3", "small", "has to be a string or a table", 'small = "model.py", or '),
        ("small = {}", "small", "does not name a target", 'add target = "model.py:Net(hidden=8)"'),
        ('small = ""', "small", "is empty", None),
        ('small = "model.py:Net(x)"', "small", "is not a target: cannot read 'Net(x)'",
         "write it as"),
        ('"a/b" = "model.py"', '"a/b"', "is not a valid target name",
         "use letters, digits, - and _"),
        ('"-a" = "model.py"', "-a", "is not a valid target name", "use letters, digits, - and _"),
        ('s = { target = "m.py", stesp = 1 }', "s.stesp", "is not a known option of a target",
         "did you mean `steps`?"),
        ('s = { target = "m.py", fail-level = "error" }', "s.fail-level",
         "is not a known option of a target", None),
        ('s = { target = "m.py", batch = "b", input = "3" }', "s.input",
         "cannot be combined with `batch`",
         "remove one of them"),
        ('s = { target = "m.py", loss = "mse", grad-output = "ones" }', "s.grad-output",
         "cannot be combined with `loss`", "remove one of them"),
        ('s = { target = "m.py", loss = "mse-los" }', "s.loss",
         "is not a name in the file: ", None),
        ('s = { target = "m.py", loss = "cross-entrpy" }', "s.loss", "is not a name in the file: ",
         "did you mean `cross-entropy`?"),
        ('s = { target = "m.py", model = "a b" }', "s.model", "is not a name in the file: ",
         "write it as"),
        ('s = { target = "m.py", args = "--x 1" }', "s.args", "has to be a list of strings", None),
        ('s = { target = "m.py", input = [] }', "s.input", "is empty", None),
        ('s = { target = "m.py", input = "8," }', "s.input",
         "is not an input: `8,`: expected [name=][dtype[low,high]:]size,size,...",
         'such as "8,3,'),
        ('s = { target = "m.py", input = ["8", "flaot:8"] }', "s.input",
         "is not an input: `flaot:8`: ", "did you mean 'float'?"),
        ('s = { target = "m.py", input = 3 }', "s.input",
         "has to be a string or a list of strings", None),
    ],
)  # fmt: skip
def test_errors_in_targets_name_target_and_key(text, key, wrong, help_text, project):
    project(f"[tool.gradscope.targets]\n{text}\n")
    with pytest.raises(GradscopeError) as caught:
        read_configuration()
    position = f"`tool.gradscope.targets.{key}` in pyproject.toml:2"
    assert caught.value.what.startswith(f"{position} {wrong}")
    assert help_text is None or caught.value.help.startswith(help_text)


def toml(value):
    """Return a value as TOML writes it."""
    if isinstance(value, dict):
        return (
            "{ "
            + ", ".join(
                f"{json.dumps(k, ensure_ascii=False)} = {toml(v)}" for k, v in value.items()
            )
            + " }"
        )
    if isinstance(value, list):
        return "[" + ", ".join(map(toml, value)) + "]"
    if isinstance(value, float) and not math.isfinite(value):
        return "nan" if math.isnan(value) else "inf" if value > 0 else "-inf"
    return json.dumps(value, ensure_ascii=False) if isinstance(value, str | bool) else str(value)


# Of all letters JSON and TOML escape the same, but for DEL.
LETTERS = st.characters(codec="utf-8", exclude_characters="\x7f")
SCALARS = st.one_of(
    st.text(LETTERS, max_size=5), st.booleans(), st.integers(), st.floats(),
    st.sampled_from(["1979-05-27", "07:32:00"]).map(lambda text: Literally(text)),
)  # fmt: skip
VALUES = st.one_of(
    SCALARS,
    st.lists(SCALARS, max_size=2),
    st.dictionaries(st.text(LETTERS, max_size=3), SCALARS, max_size=2),
)


class Literally:
    """A date or a time, which TOML writes without quotes."""

    def __init__(self, text):
        self.text = text

    def __str__(self):
        return self.text


PLACES = [
    *((f"{key}", f"tool.gradscope.{key}") for key in (*keys.TOP_LEVEL, *keys.SUBTABLES)),
    *(
        (f'targets.s.target = "m.py"\ntargets.s.{key}', f"tool.gradscope.targets.s.{key}")
        for key in keys.OF_TARGET
        if key != "target"
    ),
    ("targets.s.target", "tool.gradscope.targets.s.target"),
    ("targets.s", "tool.gradscope.targets.s"),
    ("rules.dead-unit", "tool.gradscope.rules.dead-unit"),
    ("rules.dead-unit.rows", "tool.gradscope.rules.dead-unit.rows"),
    ("rules.dead-unit.error_share", "tool.gradscope.rules.dead-unit.error_share"),
    ("per-module-ignores.a", "tool.gradscope.per-module-ignores.a"),
    ("grad-norms.a", "tool.gradscope.grad-norms.a"),
    ("grad-norms.a.max", "tool.gradscope.grad-norms.a.max"),
]


@pytest.mark.parametrize(
    ("written", "key"), some_on_push(PLACES, 4), ids=[key for _, key in PLACES]
)
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(value=VALUES)
def test_any_value_is_read_or_one_clean_error(written, key, value, project):
    project(f"[tool.gradscope]\n{written} = {toml(value)}\n")
    try:
        read_configuration()
    except GradscopeError as error:
        assert error.what.startswith(f"`{key}")
        assert " in pyproject.toml:" in error.what


def test_settings_alone_are_those_of_the_whole(project):
    project('[tool.gradscope]\nignore = ["GS101"]\n')
    assert configured_settings() == read_configuration().settings
