from pathlib import Path

import pytest

from gradscope.configuration import configured_settings, with_options
from gradscope.errors import GradscopeError
from gradscope.rules.settings import DEFAULT_SETTINGS, Settings

LIST = 'as in ["GS101", "reach"]'


@pytest.fixture
def project(tmp_path, monkeypatch):
    """A working directory, and what makes its configuration file."""
    folder = tmp_path / "project" / "src"
    folder.mkdir(parents=True)
    monkeypatch.chdir(folder)

    def write(text, path="pyproject.toml"):
        file = Path(path)
        file.write_text(text, encoding="utf-8")
        return file

    return write


def configured(project, text):
    project(text)
    return configured_settings()


def test_every_key_is_read(project):
    settings = configured(
        project,
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
        """,
    )
    assert settings == Settings(
        select=("GS1", "reach"),
        ignore=("GS105",),
        extend_select=("loss-broadcast",),
        thresholds={"dead-unit": {"warning_share": 0.7, "error_share": 1, "rows": 32}},
        per_module_ignores={"encoder.*": ("GS203",)},
    )


def test_nearest_file_that_configures_gradscope_counts(project):
    project('[tool.gradscope]\nignore = ["GS101"]', "../../pyproject.toml")
    project('[tool.gradscope]\nignore = ["GS102"]', "../pyproject.toml")
    assert configured_settings().ignore == ("GS102",)
    project('[project]\nname = "x"\n[tool.ruff]\nline-length = 100')
    assert configured_settings().ignore == ("GS102",)
    project("[tool.gradscope]")
    assert configured_settings() == DEFAULT_SETTINGS


def test_without_a_file_the_defaults_count(project):
    assert configured_settings() == DEFAULT_SETTINGS


def test_named_file_counts_alone(project):
    project('[tool.gradscope]\nignore = ["GS101"]')
    other = project('[tool.gradscope]\nselect = ["GS2"]', "other.toml")
    assert configured_settings(other) == Settings(select=("GS2",))


@pytest.mark.parametrize(
    ("text", "what", "help_text"),
    [
        ("selct = []", "`tool.gradscope.selct` in pyproject.toml is no option of gradscope",
         "did you mean `select`?"),
        ("x = 1", "`tool.gradscope.x` in pyproject.toml is no option of gradscope",
         "it has select, ignore, extend-select, rules, per-module-ignores"),
        ('select = "GS1"', "`tool.gradscope.select` in pyproject.toml has to be a list of strings",
         LIST),
        ("ignore = [1]", "`tool.gradscope.ignore` in pyproject.toml has to be a list of strings",
         LIST),
        ('ignore = ["dead-unti"]', "`tool.gradscope.ignore` in pyproject.toml names what is not "
         "there: no rule `dead-unti`: did you mean `dead-unit`?", None),
        ("rules = 3", "`tool.gradscope.rules` in pyproject.toml has to be a table", None),
        ("rules.dead-unti.rows = 1", "`tool.gradscope.rules.dead-unti` in pyproject.toml is no "
         "rule", "did you mean `dead-unit`?"),
        ("rules.GS105.rows = 1", "`tool.gradscope.rules.GS105` in pyproject.toml is a rule's code",
         "[tool.gradscope.rules.dead-unit]"),
        ("rules.dead-unit.row = 1", "`tool.gradscope.rules.dead-unit.row` in pyproject.toml is no "
         "threshold of dead-unit", "did you mean `rows`?"),
        ("rules.dead-unit.rows = true", "`tool.gradscope.rules.dead-unit.rows` in pyproject.toml "
         "has to be a number", None),
        ("rules.dead-unit.rows = 1.5", "`tool.gradscope.rules.dead-unit.rows` in pyproject.toml "
         "has to be a whole number", None),
        ("rules.dead-unit.error_share = nan", "`tool.gradscope.rules.dead-unit.error_share` in "
         "pyproject.toml has to be a number", None),
        ('per-module-ignores."encoder.*" = "GS203"', "`tool.gradscope.per-module-ignores.encoder.*`"
         " in pyproject.toml has to be a list of strings", LIST),
        ('per-module-ignores."a.*" = ["GS999"]', "`tool.gradscope.per-module-ignores.a.*` in "
         "pyproject.toml names what is not there: no rule `GS999`: did you mean ", None),
    ],
)  # fmt: skip
def test_errors_name_file_and_key(text, what, help_text, project):
    project(f"[tool.gradscope]\n{text}\n")
    with pytest.raises(GradscopeError) as caught:
        configured_settings()
    assert caught.value.what.startswith(what)
    assert help_text is None or caught.value.help == help_text


def test_rules_without_thresholds_have_none_to_set(project):
    project("[tool.gradscope.rules.gradient-cut]\nlimit = 3")
    with pytest.raises(GradscopeError, match="is no threshold of gradient-cut") as caught:
        configured_settings()
    assert caught.value.help is None


def test_errors_name_a_file_that_lies_elsewhere_in_full(project, tmp_path):
    project("[tool.gradscope]\nx = 1", "../pyproject.toml")
    with pytest.raises(GradscopeError) as caught:
        configured_settings()
    assert f" in {tmp_path / 'project' / 'pyproject.toml'} is no option" in caught.value.what


def test_files_that_cannot_be_read_are_errors(project):
    with pytest.raises(GradscopeError, match=r"there is no file `missing.toml`"):
        configured_settings(Path("missing.toml"))
    with pytest.raises(GradscopeError, match=r"`other.toml` has no table"):
        configured_settings(project("[tool.ruff]", "other.toml"))
    with pytest.raises(GradscopeError, match=r"cannot read `folder.toml`"):
        Path("folder.toml").mkdir()
        configured_settings(Path("folder.toml"))
    project("[tool.gradscope\n")
    with pytest.raises(GradscopeError, match=r"`pyproject.toml` is no valid TOML") as caught:
        configured_settings()
    assert "line 1" in caught.value.cause
    Path("pyproject.toml").write_bytes(b"\xff\xfe")
    with pytest.raises(GradscopeError, match=r"`pyproject.toml` is no valid TOML"):
        configured_settings()
    project("tool = 3")
    with pytest.raises(GradscopeError, match=r"`tool` in pyproject.toml has to be a table"):
        configured_settings()


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
