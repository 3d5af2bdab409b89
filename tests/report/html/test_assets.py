import re
from collections import Counter
from importlib.resources import files

from gradscope.report.html.page import SCRIPTS, SERVED_SCRIPTS

ASSETS = files("gradscope.report.html") / "assets"


def test_scripts_share_a_scope_and_no_name():
    declared = Counter(
        name
        for script in (*SCRIPTS, *SERVED_SCRIPTS)
        for name in re.findall(
            r"^(?:function|const|let|class) (\w+)",
            ASSETS.joinpath(f"{script}.js").read_text("utf-8"),
            re.MULTILINE,
        )
    )
    assert declared["Tab"] == 1
    assert [name for name, count in declared.items() if count > 1] == []


def test_every_script_is_on_the_page():
    folders = {"": ASSETS, "served/": ASSETS / "served"}
    found = {f"{above}{one.name}" for above, folder in folders.items() for one in folder.iterdir()}
    scripts = (*SCRIPTS, *SERVED_SCRIPTS, "served/library")
    assert {name for name in found if name.endswith(".js")} == {f"{one}.js" for one in scripts}
