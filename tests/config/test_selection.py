import math

import pytest

from gradscope.config import configured_settings, with_options
from gradscope.errors import GradscopeError
from gradscope.rules.settings import DEFAULT_SETTINGS, WHOLE_MODEL, NormLimit, Settings


def test_every_key_is_read(project):
    project(
        """
        [tool.gradscope]
        select = ["GS1", "reach"]
        ignore = ["GS105"]
        extend-select = ["loss-broadcast"]

        [tool.gradscope.rules.dead-unit]
        warning_share = 0.7
        error_share = 1
        rows = 32

        [tool.gradscope.per-module-ignores]
        "encoder.*" = ["GS203"]

        [tool.gradscope.grad-norms]
        "encoder.*" = { max = 10.0, min = 1e-7 }
        head = { max = 3 }
        """
    )
    assert configured_settings() == Settings(
        select=("GS1", "reach"),
        ignore=("GS105",),
        extend_select=("loss-broadcast",),
        thresholds={"dead-unit": {"warning_share": 0.7, "error_share": 1, "rows": 32}},
        per_module_ignores={"encoder.*": ("GS203",)},
        norm_limits={
            "encoder.*": NormLimit(minimum=1e-7, maximum=10),
            "head": NormLimit(maximum=3),
        },
    )


@pytest.mark.parametrize(
    ("text", "limit"),
    [
        ("max-grad-norm = 10", NormLimit(maximum=10)),
        ("min-grad-norm = 1e-3", NormLimit(minimum=1e-3)),
        ("max-grad-norm = 0.5\nmin-grad-norm = 0.5", NormLimit(minimum=0.5, maximum=0.5)),
    ],
)
def test_norm_of_the_whole_model_is_limited_by_keys_of_its_own(text, limit, project):
    project(f"[tool.gradscope]\n{text}\n[tool.gradscope.grad-norms]\na = {{ max = 3 }}")
    assert configured_settings().norm_limits == {WHOLE_MODEL: limit, "a": NormLimit(maximum=3)}


def options(select=(), ignore=(), extend_select=()):
    return {"select": select, "ignore": ignore, "extend_select": extend_select}


CONFIGURED = Settings(
    select=("GS2",),
    ignore=("GS203", "GS105"),
    extend_select=("GS702",),
    thresholds={"dead-unit": {"rows": 3}},
    per_module_ignores={"a": ("GS203",)},
)


def test_options_that_are_not_given_change_nothing():
    assert with_options(CONFIGURED, **options()) == CONFIGURED


def test_options_win():
    changed = with_options(CONFIGURED, **options(select=("GS1",)))
    assert (changed.select, changed.ignore) == (("GS1",), ("GS203", "GS105"))
    assert changed.extend_select == ()
    assert changed.thresholds == CONFIGURED.thresholds
    changed = with_options(CONFIGURED, **options(select=("dead-unit",)))
    assert changed.ignore == ("GS203",)
    changed = with_options(CONFIGURED, **options(ignore=("loss",)))
    assert (changed.select, changed.ignore, changed.extend_select) == (("GS2",), ("loss",), ())
    changed = with_options(CONFIGURED, **options(extend_select=("GS105",)))
    assert changed.extend_select == ("GS702", "GS105")


def test_options_that_name_no_rule_are_errors():
    for key in ("select", "ignore"):
        with pytest.raises(GradscopeError, match="no rule `GS999`"):
            with_options(DEFAULT_SETTINGS, **options(**{key: ("GS999",)}))


def test_limits_of_the_command_line_win_each_for_itself():
    configured = Settings(
        norm_limits={
            WHOLE_MODEL: NormLimit(minimum=1.0, maximum=2.0),
            "encoder": NormLimit(maximum=5.0),
        }
    )
    assert with_options(configured).norm_limits is configured.norm_limits
    changed = with_options(configured, max_grad_norm=3.0)
    assert changed.norm_limits == {
        WHOLE_MODEL: NormLimit(minimum=1.0, maximum=3.0),
        "encoder": NormLimit(maximum=5.0),
    }
    changed = with_options(DEFAULT_SETTINGS, min_grad_norm=0.0)
    assert changed.norm_limits == {WHOLE_MODEL: NormLimit(minimum=0.0)}
    with pytest.raises(GradscopeError, match="at least 1 and at most") as caught:
        with_options(configured, max_grad_norm=0.5)
    assert caught.value.help == "raise --max-grad-norm or lower --min-grad-norm"


@pytest.mark.parametrize("value", [math.nan, math.inf, -1.0])
def test_limits_of_the_command_line_are_numbers_that_a_norm_can_have(value):
    for option in ("max_grad_norm", "min_grad_norm"):
        with pytest.raises(GradscopeError, match=rf"^--{option.replace('_', '-')} has to be "):
            with_options(DEFAULT_SETTINGS, **{option: value})
