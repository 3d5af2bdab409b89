"""The garbage collector is left as it was found."""

import gc

import pytest

from gradscope.garbage import rare_garbage_collection


@pytest.fixture(name="before")
def _before():
    known = gc.get_threshold()
    gc.set_threshold(700, 10, 10)
    yield gc.get_threshold()
    gc.set_threshold(*known)


def test_thresholds_return_after_an_exception(before):
    with pytest.raises(KeyError), rare_garbage_collection():
        assert gc.get_threshold()[0] > before[0]
        raise KeyError
    assert gc.get_threshold() == before


def test_collector_that_was_off_stays_off():
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        with rare_garbage_collection():
            assert not gc.isenabled()
        assert not gc.isenabled()
    finally:
        if was_enabled:
            gc.enable()
