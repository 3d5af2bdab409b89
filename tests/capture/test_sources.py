from gradscope.capture.source.statements import sources_around
from gradscope.recording.records import Site


def site(path, line):
    return Site(file=str(path), line=line, function="f", source="")


def windows(path, *lines):
    return [(record.first, record.lines) for record in sources_around(site(path, n) for n in lines)]


def test_two_lines_around_each_line_within_the_file(tmp_path):
    path = tmp_path / "code.py"
    path.write_text("one\n  two  \n\nfour\nfive\nsix\nseven\neight\nnine\n")
    assert windows(path, 5) == [(3, ("", "four", "five", "six", "seven"))]
    assert windows(path, 1) == [(1, ("one", "  two", ""))]
    assert windows(path, 9) == [(7, ("seven", "eight", "nine"))]


def test_windows_that_touch_are_one(tmp_path):
    path = tmp_path / "code.py"
    path.write_text("".join(f"{number}\n" for number in range(1, 31)))
    (first, lines), (other, _) = windows(path, 8, 3, 25, 8)
    assert (first, lines[0], lines[-1], other) == (1, "1", "10", 23)
    assert len(lines) == 10


def test_files_that_cannot_be_read_and_lines_that_are_not_there_have_none(tmp_path):
    path = tmp_path / "code.py"
    path.write_text("one\n")
    assert windows(path, 50) == []
    assert windows(tmp_path / "missing.py", 1) == []
    assert windows("<stdin>", 1) == []
