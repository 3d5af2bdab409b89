import pytest
import torch
import torch.nn.functional as F  # noqa: N812
from torch import nn

from gradscope.capture.step.forward_backward import StepCapture


def watched(run):
    capture = StepCapture([])
    with capture.forward():
        kept = run()
    return capture, kept


def operations(run) -> list[str]:
    capture, _ = watched(run)
    return [write.operation for write in capture.writes.writes]


@pytest.mark.parametrize(
    ("write", "operation"),
    [
        (lambda x: x.add_(1), "add_"),
        (lambda x: x.__iadd__(1), "add_"),
        (lambda x: x.__setitem__(0, 1.0), "__setitem__"),
        (lambda x: F.relu(x, inplace=True), "relu"),
        (lambda x: nn.ReLU(inplace=True)(x), "relu"),
        (lambda x: nn.init.zeros_(x), "zero_"),
        (lambda x: x.copy_(x + 1), "copy_"),
        (lambda x: torch._foreach_add_([x, x], 1), "_foreach_add_"),
    ],
    ids=["method", "operator", "elements", "option", "module", "init", "copy", "foreach"],
)
def test_every_way_to_write_is_observed(write, operation):
    assert set(operations(lambda: write(torch.ones(3)))) == {operation}


@pytest.mark.parametrize(
    "look",
    [
        lambda x: x.requires_grad_(),
        lambda x: F.relu(x),
        lambda x: x + 1,
        lambda x: x[0],
        lambda x: x.detach_(),
    ],
    ids=["flag", "function", "new", "view", "detach"],
)
def test_what_writes_nothing_is_not_observed(look):
    assert operations(lambda: look(torch.ones(3))) == []


def test_tensors_without_versions_are_left_alone():
    def run():
        with torch.inference_mode():
            torch.ones(3).add_(1)
        torch.ones(3, device="meta").add_(1)
        torch.eye(3).to_sparse().mul_(2)

    assert operations(run) == []


MESSAGE = (
    "one of the variables needed for gradient computation has been modified by an inplace "
    "operation: [torch.FloatTensor [3]], which is output 0 of ExpBackward0, is at version {found}; "
    "expected version {expected} instead."
)


def culprit(capture, *, found: int, expected: int = 0, after: int | None = None):
    return capture.writes.culprit(MESSAGE.format(found=found, expected=expected), after)


def test_the_first_write_after_the_saving_is_the_culprit():
    def run():
        x = torch.ones(3)
        x.add_(1)
        x.mul_(2)
        x.sub_(3)
        return x

    capture, x = watched(run)
    assert x._version == 3
    assert culprit(capture, found=3, expected=1).operation == "mul_"
    assert culprit(capture, found=3).operation == "add_"


def test_a_tensor_of_the_shape_and_versions_is_distinguished_from_others():
    def run():
        other, more, x = torch.ones(4), torch.ones(3), torch.ones(3)
        other.sub_(1)
        more.div_(2)
        more.div_(2)
        x.mul_(2)
        return other, more, x

    capture, _ = watched(run)
    assert culprit(capture, found=1).operation == "mul_"
    assert culprit(capture, found=2).operation == "div_"


def test_writes_before_the_saving_are_no_culprits():
    def run():
        leaf = torch.ones(3, requires_grad=True)
        early = torch.ones(3)
        early.add_(1)
        saved = leaf.exp()
        number = saved.grad_fn._sequence_nr()
        late = torch.ones(3)
        late.mul_(1)
        return early, late, number

    capture, (_, _, number) = watched(run)
    assert culprit(capture, found=1, after=number).operation == "mul_"


def test_a_write_by_way_of_a_view_is_found():
    def run():
        x = torch.ones(6)
        x[:3].add_(1)
        return x

    capture, x = watched(run)
    assert x._version == 1
    assert capture.writes.culprit(MESSAGE.format(found=1, expected=0), None).operation == "add_"


def test_a_message_without_versions_tells_nothing():
    capture, _ = watched(lambda: torch.ones(3).add_(1))
    assert capture.writes.culprit("something else", None) is None


def test_no_tensor_is_stored():
    import gc
    import weakref

    def run():
        x = torch.ones(3)
        x.add_(1)
        return weakref.ref(x)

    _, reference = watched(run)
    gc.collect()
    assert reference() is None


def test_switches_and_backwards_are_noted_with_their_lines():
    leaf = torch.ones(3, requires_grad=True)

    def run():
        with torch.no_grad():
            leaf.exp()
        loss = leaf.exp().sum()
        loss.backward(retain_graph=True)
        torch.autograd.grad(leaf.exp().sum(), leaf, create_graph=True)
        loss.backward()
        return loss.grad_fn._sequence_nr()

    capture, number = watched(run)
    first = run.__code__.co_firstlineno
    assert capture.switches.before(capture.cuts.cuts[0]).number == first + 1
    (call,) = capture.backwards.calls
    assert (call.name, call.line.number) == ("backward", first + 6)
    assert capture.backwards.that_freed(number) is call
    assert capture.backwards.that_freed(number + 1000) is None


@pytest.mark.filterwarnings("ignore:.torch.jit.script")
def test_writes_inside_of_transforms_of_functions_are_let_through():
    weight = nn.Parameter(torch.ones(3))

    def loss(x):
        return torch.func.hessian(lambda row: (row * weight).tanh().sum())(x).sum()

    capture = StepCapture([weight])
    with capture.forward():
        watched = loss(torch.ones(3))
    assert torch.equal(watched, loss(torch.ones(3)))
