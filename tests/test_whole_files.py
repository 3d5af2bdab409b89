import os

import pytest

from gradscope.files import written_whole


@pytest.fixture
def page(tmp_path):
    return tmp_path / "page.html"


def test_old_file_stays_until_all_is_written(page):
    page.write_text("old")
    with pytest.raises(OSError, match="full"), written_whole(page) as path:
        path.write_text("half of the n")
        raise OSError("full")
    assert page.read_text() == "old"
    assert list(page.parent.iterdir()) == [page]


def test_nothing_is_left_of_a_new_file_that_was_not_finished(page):
    with pytest.raises(OSError, match="full"), written_whole(page) as path:
        path.write_text("half")
        raise OSError("full")
    assert not list(page.parent.iterdir())


def test_replaced_file_keeps_its_mode_and_its_links(page, tmp_path):
    page.write_text("old")
    page.chmod(0o640)
    link = tmp_path / "link.html"
    link.symlink_to(page)
    with written_whole(link) as path:
        path.write_text("new")
    assert page.read_text() == "new"
    assert page.stat().st_mode & 0o777 == 0o640
    assert link.is_symlink()


def test_longest_name_that_a_folder_takes_can_be_written(tmp_path):
    page = tmp_path / ("x" * 250 + ".html")
    with written_whole(page) as path:
        path.write_text("new")
    assert page.read_text() == "new"


def test_pipe_is_written_itself(page):
    os.mkfifo(page)
    with written_whole(page) as path:
        assert path == page
    assert page.is_fifo()
