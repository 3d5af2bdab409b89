"""Tensors of every kind of torch pass through all code that reads elements."""

import math
import struct
import time
import warnings

import pytest
import torch
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.nn.parameter import UninitializedParameter
from torch.testing._internal.two_tensor import TwoTensor

from gradscope.capture.first_elements import FirstElements
from gradscope.capture.reading import (
    NotReadable,
    elements,
    has_freed_memory,
    is_plain,
    only_number,
    stored,
    whole,
    why_unreadable,
)
from gradscope.capture.statistics import HELD_ELEMENTS, Measurer, norms
from gradscope.capture.step.stored_gradients import keep
from gradscope.capture.training.clips import value_numbers
from gradscope.capture.training.event_log import number
from gradscope.capture.training.gradient_state import _is_zero
from gradscope.capture.training.steps.measurements import _sampled
from gradscope.probes.clipping import power_norm
from gradscope.probes.forward.nonfinite_origins import broken_of
from gradscope.probes.forward.operations import plain_floats
from gradscope.probes.snapshot import preserved

SIZES = (6, 3 * HELD_ELEMENTS)


def emptied(tensor: Tensor, size: int = 0) -> Tensor:
    tensor.untyped_storage().resize_(size)
    return tensor


def sparse(size: int) -> Tensor:
    return torch.ones(size).to_sparse()


def with_freed_values(size: int) -> Tensor:
    found = sparse(size)
    emptied(found._values())
    return found


def with_freed_indices(size: int) -> Tensor:
    found = sparse(size)
    emptied(found._indices())
    return found


def converted(tensor: Tensor, convert: str, *args: object) -> Tensor:
    with warnings.catch_warnings():  # torch calls what comes of it experimental
        warnings.simplefilter("ignore")
        return getattr(tensor, convert)(*args)


def compressed_without_values(size: int) -> Tensor:
    found = converted(torch.ones(2, size), "to_sparse_csr")
    emptied(found.values())
    return found


def nested(size: int, layout: torch.layout) -> Tensor:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return torch.nested.nested_tensor([torch.ones(2, size), torch.ones(1, size)], layout=layout)


def freed_jagged(size: int) -> Tensor:
    found = nested(size, torch.jagged)
    emptied(found.values())
    return found


def quantised(size: int) -> Tensor:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return torch.quantize_per_tensor(torch.ones(size), 0.1, 0, torch.qint8)


def within(transform, size: int) -> Tensor:
    """Return what a transform of `torch.func` has handed to its function."""
    seen = []

    def look(x):
        seen.append(x)
        return x.sum()

    transform(look)(torch.ones(2, size))
    return seen[0]


def fake(size: int) -> Tensor:
    with FakeTensorMode():
        return torch.ones(size)


def inference(size: int) -> Tensor:
    with torch.inference_mode():
        return torch.ones(size)


class Logging(Tensor):
    """Has elements of its own, and code of its own for what is done with them."""

    @classmethod
    def __torch_dispatch__(cls, func, types, args=(), kwargs=None):
        raise AssertionError("code of the user's was called")


class Hooked(Tensor):
    """The same for torch's functions."""

    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        raise AssertionError("code of the user's was called")


UNREADABLE = {
    "emptied": lambda n: emptied(torch.ones(n)),
    "emptied parameter": lambda n: emptied(nn.Parameter(torch.ones(n)).detach()),
    "a view of what was emptied": lambda n: emptied(torch.ones(n + 3)[3:]),
    "a transposed view of what was emptied": lambda n: emptied(torch.ones(n, 2).t()),
    "an expanded view of what was emptied": lambda n: emptied(torch.ones(1).expand(n)),
    "partly emptied": lambda n: emptied(torch.ones(n), 4 * (n - 1)),
    "half precision, emptied": lambda n: emptied(torch.ones(n).bfloat16()),
    "complex, emptied": lambda n: emptied(torch.ones(n, dtype=torch.complex64).conj()),
    "sparse without values": with_freed_values,
    "sparse without indices": with_freed_indices,
    "compressed without values": compressed_without_values,
    "jagged, emptied": freed_jagged,
    "nested, emptied": lambda n: emptied(nested(n, torch.strided)),
    "meta": lambda n: torch.ones(n, device="meta"),
    "sparse meta": lambda n: sparse(n).to("meta"),
    "fake": fake,
    "parameter of a fake": lambda n: nn.Parameter(fake(n)).detach(),
    "functional": lambda n: torch._to_functional_tensor(torch.ones(n)),
    "left over from vmap": lambda n: within(torch.vmap, n),
    "left over from grad": lambda n: within(torch.func.grad, n),
    "left over from functionalize": lambda n: within(torch.func.functionalize, n),
    "zeros without memory": lambda n: torch._efficientzerotensor(n),
    "quantised": quantised,
    "int8": lambda n: torch.ones(n, dtype=torch.int8),
    "four bits": lambda n: torch.ones(n, dtype=torch.uint8).view(torch.float4_e2m1fn_x2),
    "wrapper class": lambda n: TwoTensor(torch.ones(n), torch.ones(n)),
    "class with a dispatch of its own": lambda n: torch.ones(n).as_subclass(Logging),
}

READABLE = {
    "dense": torch.ones,
    "parameter": lambda n: nn.Parameter(torch.ones(n)),
    "inference": inference,
    "class with functions of its own": lambda n: torch.ones(n).as_subclass(Hooked),
    "transposed": lambda n: torch.ones(2, n // 2).t(),
    "expanded": lambda n: torch.ones(1).expand(n),
    "conjugate": lambda n: torch.full((n,), 1j).conj(),
    "negative bit": lambda n: torch.full((n,), 1j).conj().imag,
    "complex half": lambda n: converted(torch.ones(n), "to", torch.complex32),
    "bfloat16": lambda n: torch.ones(n).bfloat16(),
    "eight bits": lambda n: torch.ones(n).to(torch.float8_e4m3fn),
    "copied when written": lambda n: torch._lazy_clone(torch.ones(n)),
    "sparse": sparse,
    "sparse rows": lambda n: converted(torch.ones(2, n // 2), "to_sparse_csr"),
    "sparse columns": lambda n: converted(torch.ones(2, n // 2), "to_sparse_csc"),
    "blocks": lambda n: converted(torch.ones(2, n // 2), "to_sparse_bsr", (1, 1)),
    "mkldnn": lambda n: torch.ones(n).to_mkldnn(),
    "nested": lambda n: nested(n // 3, torch.strided),
    "jagged": lambda n: nested(n // 3, torch.jagged),
    "memory that is larger": lambda n: emptied(torch.ones(n), 5 * n),
}
"""Each of elements with a modulus of 1."""


@pytest.fixture(params=UNREADABLE)
def make_unreadable(request):
    return UNREADABLE[request.param]


@pytest.fixture(params=READABLE)
def make_readable(request):
    return READABLE[request.param]


@pytest.mark.parametrize("size", SIZES)
def test_what_cannot_be_read_is_not_measured_and_says_why(make_unreadable, size):
    tensor = make_unreadable(size)
    assert why_unreadable(tensor)
    assert not is_plain(tensor) or tensor.dtype not in (torch.float32, torch.bfloat16)
    with torch._C.DisableTorchFunction():
        measurer = Measurer()
        measurer.add((0, 0), tensor)
        assert len(measurer.results()) == 0
        assert set(measurer.unmeasured) == {(0, 0)} and measurer.unmeasured[0, 0]
        assert norms([tensor, torch.ones(4), tensor]) == [None, 2, None]


def test_no_reader_reads_what_cannot_be_read(make_unreadable):
    tensor = make_unreadable(SIZES[0])
    for mode in ("exact", "sketch"):
        assert keep([tensor], mode) == [None]
    for read in (stored, elements):
        with pytest.raises(NotReadable):
            read(tensor)
    with torch._C.DisableTorchFunction():
        assert tensor.numel() != 1 or only_number(tensor) is None
        assert FirstElements(tensor, 1).read(tensor) is None
        assert not _is_zero(tensor)
        assert number(tensor) is None
        assert _sampled(tensor) is None
        assert list(plain_floats(tensor)) == []
        assert math.isnan(power_norm(tensor, 2.0))


def test_a_number_without_memory_is_no_number_of_an_event():
    assert number(emptied(torch.tensor(3.0))) is None
    assert number(torch.tensor(3.0)) == 3
    assert number(torch.tensor(3, dtype=torch.int64)) == 3
    assert number(torch.tensor(1j)) is None
    assert whole(torch.ones(2, device="meta")) is None


@pytest.mark.parametrize("size", SIZES)
def test_what_can_be_read_is_measured(make_readable, size):
    tensor = make_readable(size)
    expected = pytest.approx(math.sqrt(size), rel=1e-6)
    assert why_unreadable(tensor) is None
    with torch._C.DisableTorchFunction():
        measurer = Measurer()
        measurer.add((0, 0), tensor)
        numbers = measurer.results()
        assert measurer.unmeasured == {}
        assert (numbers[0, 0].norm, numbers[0, 0].absolute_maximum) == (expected, 1)
        assert norms([tensor]) == [expected]
        assert not _is_zero(tensor)
        assert power_norm(tensor, 2.0) == expected
        assert not has_freed_memory(tensor)
        assert tensor.is_nested or keep([tensor], "exact") != [None]


def test_the_only_number_is_that_of_the_tensor(make_readable):
    tensor = make_readable(SIZES[0])
    with torch._C.DisableTorchFunction():
        assert only_number(tensor) is None
        one = tensor[:1] if tensor.layout is torch.strided and not tensor.is_nested else tensor
        found = only_number(one)
        # Other kinds are read by other means.
        assert found is None or found == float(one.detach())
        assert only_number(torch.ones(1, 1)) == 1
        assert only_number(torch.ones(0)) is None
        assert only_number(torch.tensor([3.0, 5.0], requires_grad=True)[1]) == 5
        assert only_number(torch.full((2,), 1j).conj()[1].imag) == -1
    for other in (torch.tensor(1), torch.tensor(True), torch.tensor(1j)):
        assert only_number(other) is None
    with torch.no_grad():
        assert only_number(torch._efficientzerotensor(1)) is None
    assert only_number(torch._to_functional_tensor(torch.ones(1))) is None


def test_the_first_elements_are_those_of_the_tensor(make_readable):
    tensor = make_readable(SIZES[0])
    with torch._C.DisableTorchFunction():
        elements = FirstElements(tensor, 2)
        found = elements.read(tensor)
    assert found is None or elements.numbers(found) == tensor.detach().flatten()[:2].tolist()


def test_the_first_elements_are_read_where_they_are_now():
    weight = nn.Parameter(torch.tensor([1.0, 2.0, 3.0, 4.0]))
    elements = FirstElements(weight, 2)
    assert elements.read(weight) == struct.pack("=2f", 1, 2)
    weight.data.mul_(2)
    assert elements.read(weight) == struct.pack("=2f", 2, 4)
    weight.data = torch.arange(8.0)[3:]
    assert elements.read(weight) == struct.pack("=2f", 3, 4)
    weight.untyped_storage().resize_(16)  # three elements, and the first of these
    assert elements.read(weight) is None
    weight.untyped_storage().resize_(0)
    assert elements.read(weight) is None
    weight.data = torch.ones(4)
    assert elements.read(weight) == struct.pack("=2f", 1, 1)
    assert elements.read(None) is None


@pytest.mark.parametrize(
    "other",
    [torch.arange(8.0)[::2], torch.ones(1), torch.ones(4).double(), torch.ones(4).bfloat16()],
)
def test_the_first_elements_of_another_kind_are_not_read(other):
    weight = nn.Parameter(torch.ones(4))
    elements = FirstElements(weight, 2)
    assert elements.read(weight) is not None
    weight.data = other
    assert elements.read(weight) is None


def test_the_first_elements_of_tensors_that_stand_for_others_are_not_read():
    for one in (torch._neg_view(torch.ones(4)), torch._to_functional_tensor(torch.ones(4))):
        assert FirstElements(one, 2).read(one) is None


def test_no_elements_are_readable_wherever_they_are_not():
    for tensor in (torch.ones(0), torch.ones(3, 0).t(), emptied(torch.ones(3)[:0])):
        assert is_plain(tensor) and norms([tensor]) == [0]
    assert norms([torch.ones(0).to_sparse()]) == [None]


def test_a_lazy_parameter_has_no_elements_yet():
    parameter = UninitializedParameter()
    assert why_unreadable(parameter) is None
    with torch._C.DisableTorchFunction():
        assert norms([parameter]) == [0]


def test_a_gradient_freed_while_backward_runs_is_not_measured():
    gradient, other = torch.ones(6), torch.ones(4)
    measurer = Measurer()
    measurer.add((0, 0), gradient)
    measurer.add((1, 0), other)
    emptied(gradient)
    numbers = measurer.results()
    assert measurer.unmeasured == {(0, 0): "its memory was freed while backward ran"}
    assert numbers[1, 0].norm == 2


@pytest.mark.parametrize("completed", [True, False])
def test_nobody_waits_for_what_another_rank_sends(completed):
    from torch.distributed._functional_collectives import AsyncCollectiveTensor

    tensor = AsyncCollectiveTensor(torch.ones(4))
    tensor.completed = completed
    assert why_unreadable(tensor) == (None if completed else "another rank has not sent it yet")
    assert norms([tensor]) == [2 if completed else None]
    assert tensor.completed is completed
    tensor.completed = True  # else it waits when it is freed


def test_clipping_by_value_is_reported_for_gradients_that_can_be_read():
    parameters = [nn.Parameter(torch.ones(4)) for _ in range(2)]
    for parameter in parameters:
        parameter.grad = torch.full((4,), 2.0)
    assert value_numbers(parameters, 1.0)["norm"] == pytest.approx(math.sqrt(32))
    emptied(parameters[1].grad)
    assert value_numbers(parameters, 1.0) == {}


def test_a_model_with_freed_memory_is_restored_without_it():
    model = nn.Linear(3, 3)
    emptied(model.weight.data)
    bias = model.bias.detach().clone()
    assert has_freed_memory(model.weight) and not has_freed_memory(model.bias)
    with preserved(model, None), torch.no_grad():
        model.bias.add_(1)
    assert torch.equal(model.bias, bias)
    assert model.weight.untyped_storage().nbytes() == 0


def test_broken_elements_are_found_and_freed_ones_are_not_taken_for_them():
    broken, freed = torch.tensor([1.0, math.nan]), emptied(torch.tensor([1.0, math.nan]))
    assert [broken_of(tensor) for tensor in plain_floats([broken, freed])] == ["NaN"]


def test_the_check_of_an_ordinary_tensor_takes_well_under_a_microsecond():
    tensors = [torch.ones(8, 8) for _ in range(1000)]
    best = math.inf
    for _ in range(20):
        began = time.thread_time()
        assert all(map(is_plain, tensors))
        best = min(best, time.thread_time() - began)
    assert best / len(tensors) < 3e-6  # half a microsecond on a machine that is not shared
