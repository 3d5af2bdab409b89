"""Known findings whose file or target was renamed."""

from dataclasses import replace

import pytest

from gradscope.check.baseline import Baseline, applied, pruned, updated
from gradscope.check.baseline_file import Entry
from gradscope.check.baseline_matching import Surroundings, moved, similar
from gradscope.check.results import CheckResult, Run, target_result
from tests.check.test_baseline_edits import LINE, TEXT
from tests.rules.inspecting import report_of_file

OLD = Entry(
    target="small",
    rule="GS201",
    name="gradient-cut",
    fingerprint="a",
    subjects=("left.weight",),
    level="error",
    count=2,
    file="models/dead.py",
    function="Pair.forward",
    code="left = self.left(x).detach()",
)
NEW = replace(OLD, file="models/rank.py", fingerprint="b")


@pytest.fixture
def around(tmp_path):
    """A check of `small` in a repository with the file models/rank.py."""
    (tmp_path / "models").mkdir()
    (tmp_path / "models" / "rank.py").touch()
    return Surroundings(
        targets=frozenset({"small"}),
        files=frozenset({"models/rank.py"}),
        repositories=(tmp_path,),
        configured=frozenset({"small", "large"}),
    )


def test_the_same_line_in_a_renamed_file_has_moved(around):
    assert list(moved([OLD], [NEW], around)) == [(0, 0)]


@pytest.mark.parametrize(
    "change",
    [
        {"rule": "GS202"},
        {"function": "Other.forward"},
        {"code": "right = self.right(x).detach()"},
        {"subjects": ("right.weight",)},
        {"target": "large"},
    ],
)
def test_something_else_in_another_file_has_not(around, change):
    assert not list(moved([OLD], [replace(NEW, **change)], around))


def test_a_file_that_is_still_there_has_not_been_renamed(around):
    (around.repositories[0] / "models" / "dead.py").touch()
    assert not list(moved([OLD], [NEW], around))
    (around.repositories[0] / "models" / "dead.py").unlink()
    seen = replace(around, files=around.files | {"models/dead.py"})  # as of a recording
    assert not list(moved([OLD], [NEW], seen))
    assert not list(moved([OLD], [NEW], replace(around, repositories=())))


@pytest.mark.parametrize(
    ("name", "has_moved"),
    [
        ("tiny", True),
        ("large", False),  # it is configured, and only not part of this check
        ("small", False),
        ("models/dead.py:Pair()", True),
        ("models/rank.py:Pair()", False),
        ("models", False),  # may be a package
    ],
)
def test_a_target_that_is_no_more_was_renamed(around, name, has_moved):
    old = replace(OLD, target=name, file=NEW.file)
    assert list(moved([old], [replace(NEW, fingerprint="a")], around)) == [(0, 0)] * has_moved


def test_without_a_configuration_no_name_is_gone(around):
    old = replace(OLD, target="tiny", file=NEW.file)
    assert not list(moved([old], [NEW], replace(around, configured=None)))


def test_what_has_no_line_is_known_by_its_fingerprint(around):
    old = replace(OLD, target="tiny", file="", function="", code="")
    new = replace(old, target="small")
    assert list(moved([old], [new], around)) == [(0, 0)]
    assert not list(moved([old], [replace(new, fingerprint="b")], around))


def test_what_may_be_two_is_none(around):
    copied = replace(NEW, file="models/copy.py", fingerprint="c")
    assert not list(moved([OLD], [NEW, copied], around))
    merged = replace(OLD, file="models/other.py", fingerprint="c")
    assert not list(moved([OLD, merged], [NEW], around))
    other = {"function": "Other.forward"}
    both = [OLD, replace(OLD, **other)], [replace(NEW, **other), NEW]
    assert sorted(moved(*both, around)) == [(0, 1), (1, 0)]


def test_what_an_entry_may_have_become():
    lined = replace(OLD, code="left = self.left(x).detach().clone()", subjects=("l.weight",))
    named = replace(OLD, code="return y")
    assert similar(OLD, [lined]) is lined
    assert similar(OLD, [lined, named]) is named
    assert similar(OLD, []) is None
    for change in ({"rule": "GS202"}, {"target": "large"}, {"code": "x", "subjects": ()}):
        assert similar(OLD, [replace(lined, **change)]) is None
    assert similar(replace(OLD, code="", subjects=()), [replace(OLD, subjects=(), code="")]) is None


@pytest.fixture
def check(tmp_path, monkeypatch):
    """Check files of a repository, each as a target with a name."""
    (tmp_path / ".git").mkdir()
    monkeypatch.chdir(tmp_path)

    def run(**targets):
        found = []
        for name, file in targets.items():
            report = report_of_file(tmp_path / file)
            judged = Run(recording=report.recording, verdict=report.rules)
            found.append(target_result(name, [judged]))
        return CheckResult(version="0", command="gradscope check", targets=tuple(found))

    return run


def test_a_renamed_file_and_target_stay_known(check, tmp_path):
    (tmp_path / "dead.py").write_text(TEXT)
    baseline = updated(Baseline(), check(ranker="dead.py"))
    (tmp_path / "dead.py").rename(tmp_path / "rank.py")
    result = check(ranker="rank.py")

    def counted(result, configured):
        marked = applied(result, baseline, 2.0, is_strict=True, configured=configured)
        return [one for target in marked.targets for one in target.counted()], marked.stale

    assert counted(result, ["ranker"]) == ([], ())
    (entry,) = pruned(baseline, result, ["ranker"]).entries
    assert entry == updated(baseline, result, ["ranker"]).entries[0]
    assert (entry.file, entry.code) == ("rank.py", LINE.strip())

    renamed = check(rank="rank.py")
    assert counted(renamed, ["rank"]) == ([], ())
    assert len(counted(renamed, ["rank", "ranker"])[0]) == 1
    (entry,) = updated(baseline, renamed, ["rank"]).entries
    assert (entry.target, entry.file) == ("rank", "rank.py")

    # Made worse on the way, it counts as ever.
    (known,) = baseline.entries
    milder = Baseline(entries=(replace(known, count=1),))
    marked = applied(result, milder, 1.0, is_strict=False, configured=["ranker"])
    assert "count" in marked.targets[0].findings[0].worsened


def test_one_of_two_models_with_the_same_mistake_hides_nothing_of_the_other(check, tmp_path):
    (tmp_path / "one.py").write_text(TEXT)
    (tmp_path / "two.py").write_text(TEXT)
    baseline = updated(Baseline(), check(one="one.py"))
    for result in (check(one="one.py", two="two.py"), check(two="two.py")):
        marked = applied(result, baseline, 2.0, is_strict=True, configured=["one", "two"])
        assert len(list(marked.targets[-1].counted())) == 1
        assert marked.stale == ()


def test_stale_words_say_what_an_entry_may_have_become(check, tmp_path):
    (tmp_path / "dead.py").write_text(TEXT)
    baseline = updated(Baseline(), check(ranker="dead.py"))
    (tmp_path / "dead.py").unlink()
    (tmp_path / "rank.py").write_text(TEXT.replace("Pair", "Ranker"))
    marked = applied(check(ranker="rank.py"), baseline, 2.0, is_strict=True)
    assert marked.stale == (
        "GS201 gradient-cut in dead.py, Pair.forward (target ranker); it may now be in rank.py, "
        "Ranker.forward",
    )
