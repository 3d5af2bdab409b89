import sys

import pytest

from gradscope.errors import UserCodeError

NET = """
net = nn.Linear(3, 1)
batch = torch.ones(2, 3)
"""


def test_missing_file_offers_the_nearest_name(workplace):
    workplace.write("model.py", NET)
    error = workplace.error(spec="modle.py")
    assert error.what == "cannot open 'modle.py'"
    assert error.help == "did you mean 'model.py'?"


def test_missing_file_in_a_folder_offers_the_path(workplace):
    workplace.write("nets/model.py", NET)
    assert workplace.error(spec="nets/modle.py").help == "did you mean 'nets/model.py'?"


def test_missing_folder_is_named(workplace):
    assert workplace.error(spec="nest/model.py").help == "there is no directory 'nest'"


def test_hostile_name_is_quoted(workplace):
    error = workplace.error(spec="[/x]\x1b[31m.py")
    assert error.what == "cannot open '[/x]\\x1b[31m.py'"


def test_missing_module_is_told_from_a_missing_import(workplace):
    error = workplace.error(spec="no_such_module")
    assert error.what == "no module named 'no_such_module'"
    assert not isinstance(error, UserCodeError)


def test_import_inside_the_target_says_where_to_install(workplace):
    error = workplace.error("import no_such_package.part\n")
    assert isinstance(error, UserCodeError)
    assert error.what.startswith("while importing 'model.py': ModuleNotFoundError")
    assert error.help == (
        f"install it in THIS environment: {sys.executable} -m pip install no_such_package"
    )
    assert isinstance(error.__cause__, ModuleNotFoundError)


def test_import_of_a_module_that_lies_elsewhere_says_where(workplace):
    workplace.write("far/layers.py", "")
    workplace.write("far/deep/model.py", "import layers\n")
    error = workplace.error(spec="far/deep/model.py")
    assert error.help == f"'layers' lies in '{workplace.folder / 'far'}': run gradscope from there"


def test_dotted_module_is_imported_from_the_working_directory(workplace):
    workplace.write("parcel_a/__init__.py", "")
    workplace.write("parcel_a/nets.py", NET)
    assert workplace.load(spec="parcel_a.nets").forward().loss.isfinite()


def test_missing_part_of_a_package_is_named(workplace):
    workplace.write("parcel_b/__init__.py", "")
    assert workplace.error(spec="parcel_b.nets").what == "no module named 'parcel_b.nets'"


def test_file_in_a_package_may_import_relatively(workplace):
    workplace.write("outer_c/__init__.py", "")
    workplace.write("outer_c/inner/__init__.py", "")
    workplace.write("outer_c/shared.py", "WIDTH = 3\n")
    workplace.write(
        "outer_c/inner/model.py",
        "from ..shared import WIDTH\nnet = nn.Linear(WIDTH, 1)\nbatch = torch.ones(1, WIDTH)\n",
    )
    assert workplace.load(spec="outer_c/inner/model.py").model.in_features == 3


def test_relative_import_outside_a_package_is_explained(workplace):
    workplace.write("layers.py", "")
    error = workplace.error("from .layers import x\n")
    assert "__init__.py" in error.cause
    assert isinstance(error, UserCodeError)


def test_sibling_modules_can_be_imported(workplace):
    workplace.write("code/sibling_of_model.py", "WIDTH = 4\n")
    workplace.write("code/model.py", "from sibling_of_model import WIDTH\n" + NET)
    assert workplace.load(spec="code/model.py").model is not None


def test_exit_at_import_is_explained(workplace):
    error = workplace.error("import sys\nsys.exit(2)\n")
    assert error.cause == "line 5: sys.exit(2)"
    assert error.what == (
        "'model.py' exited (code 2) while being imported: it runs code at top level"
    )
    assert error.help == 'put it under  if __name__ == "__main__":, or pass its args after --'


def test_file_sees_its_arguments_and_never_main(workplace):
    target = workplace.load(
        """
        import sys
        class Probe(nn.Linear): pass
        net = Probe(3, 1)
        net.seen = (sys.argv, __name__)
        batch = torch.ones(2, 3)
        """,
        args=("--lr", "0.1"),
    )
    assert target.model.seen[0] == ["model.py", "--lr", "0.1"]
    assert target.model.seen[1] != "__main__"
    assert sys.argv[0] != "model.py"


def test_module_is_registered_before_it_runs(workplace):
    target = workplace.load(
        """
        from dataclasses import dataclass
        @dataclass
        class Config:
            width: "int" = 3  # dataclasses looks the module up for this string
        net = nn.Linear(Config().width, 1)
        batch = torch.ones(2, 3)
        """
    )
    assert target.model.in_features == 3


@pytest.mark.parametrize("name", ["random.py", "torch.py", "json.py"])
def test_file_named_as_a_library_replaces_nothing(workplace, name):
    original = sys.modules[name.removesuffix(".py")]
    workplace.write(name, "net = None\n", header="")
    workplace.error(spec=name)
    assert sys.modules[name.removesuffix(".py")] is original


def test_failed_import_leaves_no_module_behind(workplace):
    workplace.write("half_done.py", "raise ValueError('stop')\n")
    error = workplace.error(spec="half_done.py")
    assert error.what == "while importing 'half_done.py': ValueError: stop"
    assert "half_done" not in sys.modules


def test_syntax_error_is_the_users(workplace):
    error = workplace.error("def f(:\n")
    assert isinstance(error.__cause__, SyntaxError)


def test_directory_names_a_file_to_try(workplace):
    workplace.write("nets/model.py", NET)
    error = workplace.error(spec="nets")
    assert error.help == "name the file: nets/model.py"


def test_recording_and_notebook_are_told_apart_from_targets(workplace):
    (workplace.folder / "a.gradscope").write_text("")
    (workplace.folder / "a.ipynb").write_text("")
    assert workplace.error(spec="a.gradscope").help == "gradscope report a.gradscope"
    assert "notebook" in workplace.error(spec="a.ipynb").what


@pytest.mark.parametrize("name", ["x" * 300 + ".py", "nul\0.py", "a/" + "y" * 200 + "/m.py"])
def test_name_that_no_system_allows_is_an_error_like_any_other(workplace, name):
    assert workplace.error(spec=name).what == f"cannot open {name!r}"


def test_module_name_offers_the_file_that_was_meant(workplace):
    workplace.write("model.py", NET)
    assert workplace.error(spec="modell").help == "did you mean 'model.py'?"


def test_file_that_is_no_python_is_told_so(workplace):
    (workplace.folder / "notes.txt").write_text("x = 1")
    assert workplace.error(spec="notes.txt").what == "'notes.txt' is no Python file"


def test_misspelt_keyword_is_told_the_one_that_was_meant(workplace):
    text = "class Net(nn.Linear):\n    def __init__(self, classes): super().__init__(3, classes)\n"
    error = workplace.error(text, spec="model.py:Net(clases=4)")
    assert error.help == "did you mean 'classes'?"
