"""Statistics of gradients against float64, for every dtype, layout and extreme."""

import math
import struct

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from gradscope.capture.arithmetic import exact_on_device, norms_on_device, zeros_on_device
from gradscope.capture.statistics import HELD_ELEMENTS, Measurer, norms
from gradscope.recording.records import GradientStat
from tests.nightly import some_on_push

REAL = (torch.float16, torch.bfloat16, torch.float32, torch.float64)

ROUNDING = 1e-323
"""What rounding costs a norm that is itself too small to be a normal float64."""

LARGEST = torch.finfo(torch.float64).max


def measured(*tensors: Tensor) -> list[GradientStat]:
    measurer = Measurer()
    for position, tensor in enumerate(tensors):
        measurer.add((position, 0), tensor)
    numbers = measurer.results()
    assert measurer.unmeasured == {}
    return [numbers[position, 0] for position in range(len(tensors))]


def wide(tensor: Tensor) -> list[float]:
    """All elements (of complex ones the moduli) as plain float64 numbers."""
    dense = tensor.detach().to_dense() if tensor.layout is not torch.strided else tensor.detach()
    if dense.is_complex():
        return dense.to(torch.complex128).abs().flatten().tolist()
    return dense.double().flatten().tolist()


def exact_norm(elements: list[float]) -> float:
    """Euclidean norm by correctly rounded sums, without overflow on the way."""
    largest = max(map(abs, elements), default=0.0)
    if largest == 0 or not math.isfinite(largest):
        return math.nan if any(map(math.isnan, elements)) else largest
    # By powers of two: the reciprocal of a subnormal number overflows.
    mantissas = [math.ldexp(element, -math.frexp(largest)[1]) for element in elements]
    norm = math.sqrt(math.fsum(mantissa**2 for mantissa in mantissas))
    try:
        return math.ldexp(norm, math.frexp(largest)[1])
    except OverflowError:
        return LARGEST


def octaves(elements: list[float], smallest_normal: float) -> dict[int, int]:
    counts: dict[int, int] = {}
    for element in elements:
        if math.isfinite(element) and abs(element) >= smallest_normal:
            exponent = math.frexp(element)[1] - 1
            counts[exponent] = counts.get(exponent, 0) + 1
    return counts


def check(stat: GradientStat, tensor: Tensor) -> None:
    """Compare everything but the octaves with the elements themselves."""
    elements = wide(tensor)
    expected = exact_norm(elements)
    broken = sum(not math.isfinite(element) for element in elements)
    assert stat.numel == tensor.numel()
    assert stat.nonfinite == broken
    if broken:
        assert not math.isfinite(stat.norm)
        assert math.isnan(stat.norm) == math.isnan(sum(map(abs, elements)))
    else:
        assert min(stat.norm, LARGEST) == pytest.approx(expected, rel=1e-6, abs=ROUNDING)
        largest = max(map(abs, elements))
        assert stat.absolute_maximum == pytest.approx(largest, rel=1e-6, abs=0)
    if not stat.sampled:
        zeros = sum(element == 0 for element in elements)
        assert stat.zero_share == pytest.approx(zeros / len(elements), rel=0, abs=1e-12)


def floats_of(dtype: torch.dtype):
    """Any value of a type: zeros, subnormal, huge and tiny numbers, infinities, NaN."""
    if dtype is torch.float16:
        patterns = st.integers(0, 2**16 - 1)
        return patterns.map(lambda bits: struct.unpack("<e", struct.pack("<H", bits))[0])
    return st.floats(width=64 if dtype is torch.float64 else 32)


@st.composite
def tensors(draw, dtype: torch.dtype) -> Tensor:
    elements = draw(st.lists(floats_of(dtype), min_size=1, max_size=40))
    repeats = draw(st.sampled_from([1, 1, 3, 60]))
    tensor = torch.tensor(elements * repeats, dtype=torch.float64).to(dtype)
    if draw(st.booleans()):
        return tensor
    return tensor.repeat_interleave(2)[::2]  # not contiguous


@pytest.mark.parametrize("dtype", some_on_push(REAL, 2), ids=str)
@given(examples=st.data())
def test_numbers_equal_those_of_float64(dtype, examples):
    several = examples.draw(st.lists(tensors(dtype), min_size=1, max_size=4))
    for stat, tensor in zip(measured(*several), several, strict=True):
        check(stat, tensor)


@pytest.mark.parametrize("dtype", REAL, ids=str)
@given(elements=st.lists(st.floats(-1e4, 1e4, width=16), min_size=1, max_size=50))
def test_octaves_count_every_normal_element_of_a_small_gradient(dtype, elements):
    tensor = torch.tensor(elements, dtype=dtype)
    # Half precision is sorted as float32, in which its subnormal numbers are normal.
    sorted_as = torch.float64 if dtype is torch.float64 else torch.float32
    expected = octaves(tensor.double().tolist(), torch.finfo(sorted_as).tiny)
    (stat,) = measured(tensor)
    found = {stat.lowest_exponent + i: count for i, count in enumerate(stat.magnitudes) if count}
    assert found == expected


@pytest.mark.parametrize("dtype", REAL, ids=str)
@pytest.mark.parametrize("size", [1, 1023, 1025, HELD_ELEMENTS, HELD_ELEMENTS + 1, 300_001])
@pytest.mark.parametrize("scale", ["one", "huge", "tiny", "subnormal"])
def test_norm_of_any_size_and_scale(dtype, size, scale):
    limits = torch.finfo(dtype)
    factor = {
        "one": 1.0,
        "huge": limits.max / (4 if dtype is not torch.float64 else 1e5),
        "tiny": limits.tiny * 2,
        "subnormal": limits.smallest_normal / 4,
    }[scale]
    torch.manual_seed(size)
    tensor = (torch.randn(size, dtype=torch.float64).clamp(-3, 3) * factor).to(dtype)
    expected = exact_norm(tensor.double().tolist())
    (stat,) = measured(tensor)
    assert stat.norm == pytest.approx(expected, rel=1e-6, abs=ROUNDING)
    assert stat.absolute_maximum == tensor.double().abs().max().item()
    assert norms([tensor]) == [pytest.approx(expected, rel=1e-6, abs=ROUNDING)]


@pytest.mark.parametrize("dtype", REAL, ids=str)
@pytest.mark.parametrize("size", [1, 300_001])
@pytest.mark.parametrize("scale", ["one", "huge", "tiny"])
def test_what_an_accelerator_computes_is_exact(dtype, size, scale):
    limits = torch.finfo(dtype)
    largest = limits.max / 4 if dtype is not torch.float64 else 1e140
    smallest = limits.tiny * 2 if dtype is not torch.float64 else 1e-140
    factor = {"one": 1.0, "huge": largest, "tiny": smallest}[scale]
    torch.manual_seed(size)
    tensor = (torch.randn(size, dtype=torch.float64).clamp(-3, 3) * factor).to(dtype)
    expected = pytest.approx(exact_norm(tensor.double().tolist()), rel=1e-9)
    found = exact_on_device(tensor)
    assert float(found.norm) == expected
    assert float(found.maximum) == tensor.double().abs().max().item()
    assert float(found.nonfinite) == 0
    both = norms_on_device([tensor, tensor[:1]])
    assert [float(one) for one in both] == [expected, abs(float(tensor[0].double()))]


def test_an_accelerator_counts_what_is_not_finite():
    tensor = torch.ones(70_000)
    tensor[3], tensor[60_000], tensor[9] = math.nan, math.inf, -math.inf
    found = exact_on_device(tensor)
    assert float(found.nonfinite) == 3
    assert not math.isfinite(float(found.norm))


def test_an_accelerator_counts_zeros():
    tensor = torch.ones(70_000)
    tensor[::7] = 0
    assert int(zeros_on_device(tensor)) == 10_000


@pytest.mark.parametrize("factor", [1.0, 1e-42, 1e-30, 1e30, 2.9e38])
@pytest.mark.parametrize("size", [1, 50, 5000])
def test_complex_gradients_are_measured_by_their_moduli(factor, size):
    torch.manual_seed(size)
    parts = torch.randn(2, size, dtype=torch.float64).clamp(-1, 1) * factor
    tensor = torch.complex(*parts.float())
    (stat,) = measured(tensor)
    check(stat, tensor)
    assert stat.nonfinite == 0


def test_modulus_that_overflows_is_not_taken_for_a_broken_element():
    largest = torch.full((2,), 3e38)
    (stat,) = measured(torch.complex(largest, largest))
    assert stat.nonfinite == 0
    assert stat.norm == pytest.approx(6e38, rel=1e-6)


def test_complex_element_is_broken_when_one_part_is():
    nan, inf = float("nan"), float("inf")
    tensor = torch.tensor([complex(nan, 0), complex(0, inf), 1 + 1j, 0])
    (stat,) = measured(tensor)
    assert (stat.nonfinite, stat.zero_share) == (2, 0.25)
    assert math.isnan(stat.norm)


def strided_layouts() -> dict[str, Tensor]:
    torch.manual_seed(0)
    base = torch.randn(90, 70)
    base[base.abs() < 0.3] = 0
    return {
        "transposed": base.t(),
        "sliced": base[::2, 5:33],
        "small slice": base[3:9, ::3],
        "permuted": base.view(9, 10, 70).permute(2, 0, 1),
        "channels last": torch.randn(2, 3, 20, 20).to(memory_format=torch.channels_last),
        "expanded rows": base[:1].expand(50, 70),
        "expanded columns": base[:, :1].expand(90, 100),
        "expanded scalar": torch.tensor(3.0).expand(40, 50),
        "expanded middle": base[:, None, :].expand(90, 2, 70),
        "overlapping": torch.randn(100).as_strided((50, 3), (1, 1)),
        "conjugate": torch.randn(20, dtype=torch.complex64).conj(),
        "negated": torch.randn(20, dtype=torch.complex64).conj().imag,
        "scalar": torch.tensor(-2.5),
        "one element": torch.tensor([[[0.0]]]),
    }


@pytest.mark.parametrize("name", strided_layouts())
def test_layouts_of_strides(name):
    tensor = strided_layouts()[name]
    (stat,) = measured(tensor)
    check(stat, tensor)
    assert norms([tensor]) == [pytest.approx(exact_norm(wide(tensor)), rel=1e-6, abs=0)]


@pytest.mark.filterwarnings("ignore:Sparse .* tensor support is in beta")
@pytest.mark.parametrize("layout", ["sparse", "sparse_csr", "sparse_csc", "sparse_bsr"])
def test_sparse_layouts_count_what_they_leave_out_as_zeros(layout):
    torch.manual_seed(1)
    dense = torch.randn(8, 6).relu()
    blocks = ((2, 2),) if layout == "sparse_bsr" else ()
    tensor = getattr(dense, f"to_{layout}")(*blocks)
    (stat,) = measured(tensor)
    check(stat, dense)
    assert norms([tensor]) == [pytest.approx(exact_norm(wide(dense)), rel=1e-6)]


def test_duplicate_indices_of_a_sparse_gradient_are_summed():
    indices = torch.tensor([[0, 0, 1, 2, 2]])
    values = torch.tensor([[1.0, 2.0], [3.0, -2.0], [0.0, 5.0], [4.0, 4.0], [-4.0, -4.0]])
    tensor = torch.sparse_coo_tensor(indices, values, (4, 2), check_invariants=True)
    (stat,) = measured(tensor)
    assert stat.norm == pytest.approx(math.hypot(4, 5), rel=1e-6)  # rows: (4, 0), (0, 5), 0, 0
    assert stat.zero_share == 6 / 8
    assert stat.numel == 8


def test_large_sparse_gradient_with_duplicates():
    torch.manual_seed(2)
    indices = torch.randint(0, 500, (1, 3000))
    tensor = torch.sparse_coo_tensor(
        indices, torch.randn(3000, 16), (1000, 16), check_invariants=True
    )
    (stat,) = measured(tensor)
    check(stat, tensor.to_dense())


@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors")
@pytest.mark.parametrize("layout", [torch.strided, torch.jagged], ids=str)
def test_nested_gradient(layout):
    pieces = [torch.randn(2, 4), torch.randn(3, 4)]
    (stat,) = measured(torch.nested.nested_tensor(pieces, layout=layout))
    check(stat, torch.cat(pieces))


@pytest.mark.parametrize("shape", [(0,), (3, 0, 2)])
def test_empty_gradient_has_a_reason_and_no_numbers(shape):
    measurer = Measurer()
    measurer.add((0, 0), torch.zeros(shape))
    measurer.add((1, 0), torch.ones(2))
    assert list(measurer.results()) == [(1, 0)]
    assert measurer.unmeasured == {(0, 0): "it has no elements"}


@pytest.mark.parametrize("size", [3, 5000])
def test_meta_gradient_has_a_reason_and_no_numbers(size):
    measurer = Measurer()
    measurer.add((0, 0), torch.ones(size, device="meta"))
    assert len(measurer.results()) == 0
    assert measurer.unmeasured == {(0, 0): "a meta tensor has no elements"}


@pytest.mark.parametrize("size", [HELD_ELEMENTS, HELD_ELEMENTS + 1, 100_000])
def test_single_nonzero_is_never_reported_as_all_zero(size):
    tensor = torch.zeros(size)
    tensor[size // 2 + 1] = 1e-20
    (stat,) = measured(tensor)
    assert stat.norm == pytest.approx(1e-20, rel=1e-6)
    assert stat.zero_share < 1


def test_zero_share_of_a_large_gradient_is_close():
    torch.manual_seed(3)
    tensor = torch.randn(200_000).relu()
    (stat,) = measured(tensor)
    assert stat.sampled
    assert stat.zero_share == pytest.approx(0.5, abs=0.04)  # five standard errors


def test_gradients_of_unequal_sizes_in_one_batch_do_not_mix():
    torch.manual_seed(4)
    sizes = [1, 2, 3, 5, 7, 8, 100, 127, 1, 4096, 4095, 2050, 5000]
    several = [torch.randn(size) * 10.0**exponent for exponent, size in enumerate(sizes)]
    several[3][1] = float("nan")
    several[6][:] = 0
    several[7][5] = float("inf")
    for stat, tensor in zip(measured(*several), several, strict=True):
        check(stat, tensor)


def test_many_gradients_are_measured_in_parts():
    torch.manual_seed(5)
    several = [torch.randn(4000) for _ in range(200)]
    for stat, tensor in zip(measured(*several), several, strict=True):
        expected = torch.linalg.vector_norm(tensor.double()).item()
        assert stat.norm == pytest.approx(expected, rel=1e-6)
        assert sum(stat.magnitudes) == 1000


@pytest.mark.parametrize("layout", ["dense", "sparse"])
def test_gradient_overwritten_before_it_is_read_is_not_measured(layout):
    tensor = torch.ones(3)
    values = tensor
    if layout == "sparse":
        tensor = torch.sparse_coo_tensor(
            torch.tensor([[0, 1, 2]]), values, (5,), is_coalesced=True, check_invariants=True
        )
        values = tensor.values()
    measurer = Measurer()
    measurer.add((0, 0), tensor)
    values.mul_(2)
    assert len(measurer.results()) == 0
    assert measurer.unmeasured == {(0, 0): "it was overwritten in place while backward ran"}


def test_norms_of_mixed_tensors_keep_their_order():
    torch.manual_seed(6)
    tensors = [
        torch.randn(3),
        torch.randn(5000),
        torch.randn(3, dtype=torch.float64),
        torch.randn(4, dtype=torch.complex64),
        torch.randn(3, 2).to_sparse(),
        torch.randn(3).bfloat16(),
        torch.randn(2, 3).t(),
    ]
    expected = [exact_norm(wide(tensor)) for tensor in tensors]
    assert norms(tensors) == [pytest.approx(norm, rel=1e-6) for norm in expected]


def test_norm_of_no_elements_is_zero_and_of_unreachable_ones_none():
    empty, meta, one = norms([torch.zeros(0), torch.ones(2, device="meta"), torch.ones(1)])
    assert (empty, meta, one) == (0, None, 1)


class Wrapped(Tensor):
    """Holds its elements in another tensor, as distributed and quantised tensors do."""

    @staticmethod
    def __new__(cls, inner):
        return Tensor._make_wrapper_subclass(cls, inner.shape, dtype=inner.dtype)

    def __init__(self, inner):
        self.inner = inner

    @classmethod
    def __torch_dispatch__(cls, func, types, args=(), kwargs=None):
        unwrapped = [arg.inner if isinstance(arg, Wrapped) else arg for arg in args]
        return Wrapped(func(*unwrapped, **(kwargs or {})))


class Named(Tensor):
    """Changes what torch's functions do and not where the elements are."""


@pytest.mark.parametrize("size", [3, 2 * HELD_ELEMENTS])
def test_classes_of_tensors_are_measured_where_their_elements_can_be_reached(size):
    measurer = Measurer()
    measurer.add((0, 0), Wrapped(torch.ones(size)))
    measurer.add((1, 0), torch.ones(size).as_subclass(Named))
    measurer.add((2, 0), torch.ones(size))
    numbers = measurer.results()
    assert measurer.unmeasured == {(0, 0): "a `Wrapped` does not show its elements"}
    assert numbers[1, 0] == numbers[2, 0]
    assert norms([Wrapped(torch.ones(size))]) == [None]
