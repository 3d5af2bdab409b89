"""Which recordings are served, and by which keys addresses name them."""

import os

from gradscope.view.catalogue import Library


def touched(folder, *names):
    for age, name in enumerate(names):
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"x")
        os.utime(path, (1e9 - age, 1e9 - age))
    return folder


def test_recordings_of_all_subfolders_come_newest_first(tmp_path):
    touched(tmp_path, "b.gradscope", "deep/er/a.gradscope", "c.gradscope", "notes.txt")
    names = [entry.name for entry in Library([tmp_path]).scan()]
    assert names == ["b.gradscope", "deep/er/a.gradscope", "c.gradscope"]


def test_hidden_folders_and_packages_are_not_searched(tmp_path):
    touched(tmp_path, ".git/a.gradscope", "env/site-packages/b.gradscope", ".c.gradscope")
    assert Library([tmp_path]).scan() == ()


def test_links_to_folders_are_not_followed(tmp_path):
    touched(tmp_path / "other", "a.gradscope")
    (tmp_path / "here").mkdir()
    (tmp_path / "here" / "loop").symlink_to(tmp_path)
    assert Library([tmp_path / "here"]).scan() == ()


def test_ranks_of_a_job_are_one_entry(tmp_path):
    touched(tmp_path, "job.rank10.gradscope", "job.rank2.gradscope", "other.gradscope")
    job, other = Library([tmp_path]).scan()
    assert job.name == "job.gradscope"
    assert [path.name for path in job.paths] == ["job.rank2.gradscope", "job.rank10.gradscope"]
    assert other.paths == (tmp_path / "other.gradscope",)


def test_a_file_brings_its_ranks_and_nothing_else(tmp_path):
    touched(tmp_path, "job.rank0.gradscope", "job.rank1.gradscope", "other.gradscope")
    (entry,) = Library([tmp_path / "job.gradscope"]).scan()
    assert [path.name for path in entry.paths] == ["job.rank0.gradscope", "job.rank1.gradscope"]


def test_a_single_file_may_come_later(tmp_path):
    library = Library([tmp_path / "new.gradscope"])
    assert library.scan() == ()
    entry = library.find(library.single)
    assert (entry.name, entry.paths, entry.written) == ("new.gradscope", (), 0)
    assert Library([tmp_path]).single is None


def test_a_key_stays_and_names_one_recording(tmp_path):
    touched(tmp_path, "a.gradscope", "sub/a.gradscope")
    entries = Library([tmp_path]).scan()
    assert len({entry.key for entry in entries}) == 2
    again = Library([tmp_path / "sub"]).scan()
    assert again[0].key == next(one.key for one in entries if one.name == "sub/a.gradscope")


def test_only_known_keys_lead_to_files(tmp_path):
    touched(tmp_path, "inside/a.gradscope", "outside.gradscope")
    library = Library([tmp_path / "inside"])
    for key in ("", "..", "../outside.gradscope", "a.gradscope", str(tmp_path)):
        assert library.find(key) is None


def test_a_changed_file_has_another_stamp(tmp_path):
    touched(tmp_path, "a.gradscope")
    (entry,) = Library([tmp_path]).scan()
    before = entry.stamp
    assert entry.stamp == before
    (tmp_path / "a.gradscope-wal").write_bytes(b"step")
    assert entry.stamp != before
    (tmp_path / "a.gradscope").unlink()
    assert (0, 0) in entry.stamp


def test_names_that_are_no_text_are_shown(tmp_path):
    path = os.path.join(os.fsencode(tmp_path), b"\xff.gradscope")  # noqa: PTH118 - of bytes
    with open(path, "wb"):  # noqa: PTH123
        pass
    (entry,) = Library([tmp_path]).scan()
    assert entry.name == "�.gradscope"
