"""Inspects models as `gradscope inspect` does, and hands over what was found."""

import pytest
import torch

import gradscope
from tests.rules.inspecting import report_of_file


@pytest.fixture(autouse=True)
def _one_thread_and_seed():
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    # Not `torch.manual_seed`, which formats the whole stack for each kind of device.
    torch.default_generator.manual_seed(0)
    yield
    torch.set_num_threads(threads)


@pytest.fixture
def inspect_file(tmp_path):
    """Write a target's text to a file and return its report; `# <-` marks a line to be found."""

    def inspect(text: str, **chosen: object):
        path = tmp_path / "model.py"
        path.write_text(text)
        return report_of_file(path, **chosen)

    return inspect


@pytest.fixture
def findings_of():
    """Inspect objects, and return what the rules found."""

    def inspect(*args: object, **kwargs: object):
        return gradscope.inspect(*args, **kwargs).findings

    return inspect
