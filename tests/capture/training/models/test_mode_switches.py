"""Which frame decides about the mode of a module."""

import sys

import pytest

from gradscope.capture.training.models.running_modules import deciding_frame


class Net:
    def __init__(self, frames):
        self.frames = frames

    def eval(self):
        self.frames.append(deciding_frame(sys._getframe(1)))

    def both(self):
        """Switch both."""
        self.eval()
        self.eval()

    def all_of(self):
        for one in (self, self):
            one.eval()

    def tested(self):
        self.eval()
        return len(self.frames)


@pytest.mark.parametrize("helper", ["both", "all_of"])
def test_a_helper_that_only_switches_leaves_the_decision_to_its_caller(helper):
    frames = []
    getattr(Net(frames), helper)()
    assert frames == [sys._getframe(), sys._getframe()]


def test_other_functions_decide_themselves():
    frames = []
    Net(frames).tested()
    (frame,) = frames
    assert frame.f_code is Net.tested.__code__
    Net(frames).eval()
    assert frames[1] is sys._getframe()


def test_functions_without_source_decide_themselves():
    frames, space = [], {}
    exec("def helper(net):\n    net.eval()\n", space)
    space["helper"](Net(frames))
    assert frames[0].f_code is space["helper"].__code__
