import math
from array import array

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from gradscope.capture.step import stored_gradients
from gradscope.capture.step import stored_gradients as gradient_keeping
from gradscope.capture.step.stored_gradients import Sketcher, keep
from gradscope.recording.stored_gradient import BUCKETS, agreement, cosine, relative_difference
from tests.nightly import some_on_push

CPU = torch.device("cpu")


def kept(gradient, mode="exact", **options):
    (found,) = keep([gradient], mode, **options)
    return found.of(3, 7)


def numbers(record):
    return [x for values in record.values() for x in values]


def hash_of(index):
    """The hash as it is written down where it comes from, in whole numbers."""
    x = (index & 0x7FFFFFFF) ^ ((index >> 31) * 0x9E3779B1 & 0xFFFFFFFF)
    x = (x ^ (x >> 16)) * 0x7FEB352D & 0xFFFFFFFF
    x = (x ^ (x >> 15)) * 0x846CA68B & 0xFFFFFFFF
    x ^= x >> 16
    return x % BUCKETS, -1 if x >> 21 & 1 else 1


def sketch_of(elements):
    """A count sketch, element by element."""
    buckets = [0.0] * BUCKETS
    for index, value in elements:
        bucket, sign = hash_of(index)
        buckets[bucket] += sign * value
    return buckets


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
def test_exact_gradients_are_kept_bit_for_bit(dtype):
    gradient = torch.randn(3, 5, generator=torch.Generator().manual_seed(0)).to(dtype)
    gradient[0, 0], gradient[1, 1], gradient[2, 2] = math.nan, -math.inf, 5e-324
    record = kept(gradient)
    kind = torch.float64 if dtype is torch.float64 else torch.float32
    (part,) = record.parts
    back = torch.frombuffer(bytearray(part.values), dtype=kind).view(3, 5).to(dtype)
    integers = {2: torch.int16, 4: torch.int32, 8: torch.int64}[gradient.element_size()]
    assert torch.equal(back.isnan(), gradient.isnan())
    where = ~gradient.isnan()  # a cast keeps no more of a NaN than that it is one
    assert torch.equal(back.view(integers)[where], gradient.view(integers)[where])
    assert (record.step, record.parameter, record.form) == (3, 7, "exact")
    assert (record.shape, record.dtype) == ((3, 5), str(dtype)[6:])


@pytest.mark.parametrize(
    "gradient",
    [
        torch.arange(6.0).view(2, 3).t(),
        torch.tensor(2.0).expand(2, 3),
        torch.arange(24.0).view(1, 2, 3, 4).to(memory_format=torch.channels_last),
        torch.tensor(4.0),
        torch.empty(0, 3),
        torch.tensor([1 + 2j, 3 - 4j]).conj(),
        torch.arange(4.0).to(torch.float8_e4m3fn),
    ],
    ids=["transposed", "expanded", "channels last", "scalar", "empty", "conjugate", "float8"],
)
def test_elements_stand_in_the_order_of_their_indices(gradient):
    record = kept(gradient)
    plain = torch.view_as_real(gradient.resolve_conj()) if gradient.is_complex() else gradient
    assert numbers(record) == plain.float().flatten().tolist()
    assert record.shape == tuple(gradient.shape)


def test_long_gradients_come_in_parts(monkeypatch):
    monkeypatch.setattr(gradient_keeping, "PART_ELEMENTS", 4)
    record = kept(torch.arange(10.0))
    assert [len(part.values) for part in record.parts] == [16, 16, 8]
    assert numbers(record) == list(range(10))


def test_sparse_gradients_keep_the_rows_that_they_have():
    indices = torch.tensor([[4, 1, 4]])
    values = torch.tensor([[1.0, 2.0], [3.0, 4.0], [10.0, 20.0]])
    gradient = torch.sparse_coo_tensor(indices, values, (6, 2), check_invariants=True)
    record = kept(gradient)
    (part,) = record.parts
    assert record.form == "sparse"
    assert array("q", part.rows).tolist() == [1, 4]
    assert array("f", part.values).tolist() == [3.0, 4.0, 11.0, 22.0]
    assert numbers(record) == gradient.to_dense().flatten().tolist()
    assert relative_difference(record, kept(gradient.to_dense())) == 0.0


@pytest.mark.filterwarnings("ignore:Sparse .* tensor support is in beta")
@pytest.mark.parametrize(
    "make",
    [
        lambda: torch.tensor([[0.0, 1.0], [2.0, 0.0]]).to_sparse(),
        lambda: torch.tensor([[0.0, 1.0], [2.0, 0.0]]).to_sparse_csr(),
        lambda: torch.tensor([[0.0, 1.0], [2.0, 0.0]]).to_sparse_csc(),
        lambda: torch.tensor([[0.0, 1.0], [2.0, 0.0]]).to_sparse_bsr((1, 2)),
        lambda: torch.tensor([[0.0, 1.0], [2.0, 0.0]]).to_mkldnn(),
        lambda: torch.sparse_coo_tensor(
            torch.empty(1, 0), torch.empty(0, 3), (4, 3), check_invariants=True
        ),
    ],
    ids=["coo", "csr", "csc", "bsr", "mkldnn", "no rows"],
)
def test_other_sparse_layouts_unfold_to_what_they_stand_for(make):
    gradient = make()
    assert numbers(kept(gradient)) == gradient.to_dense().flatten().tolist()


def test_what_cannot_be_read_is_none():
    readable = torch.ones(2)
    found = keep([torch.ones(2, device="meta"), readable], "exact")
    assert found[0] is None and numbers(found[1].of(0, 0)) == [1.0, 1.0]


def test_a_scale_is_taken_out():
    assert numbers(kept(torch.tensor([2.0, -4.0]).half(), scale=8.0)) == [0.25, -0.5]


def test_small_gradients_are_whole_in_sketches_too():
    assert kept(torch.ones(BUCKETS), "sketch").form == "exact"
    assert kept(torch.ones(BUCKETS + 1), "sketch").form == "sketch"
    assert kept(torch.ones(BUCKETS // 2 + 1, dtype=torch.complex64), "sketch").form == "sketch"


@settings(max_examples=20, deadline=None)
@given(size=st.integers(1, 9_000), block=st.sampled_from([1 << 10, 1 << 12, 1 << 16]))
def test_sketches_are_those_of_single_elements(size, block):
    gradient = torch.arange(1.0, size + 1, dtype=torch.float64)
    sketcher = Sketcher(CPU)
    sketcher._block = block
    assert sketcher.sketch(gradient).tolist() == sketch_of(enumerate(gradient.tolist()))


def test_indices_beyond_31_bits_are_hashed_apart():
    indices = [0, 1, 2**31 - 1, 2**31, 2**31 + 1, 2**32 + 5, 2**40 + 7]
    buckets, signs = Sketcher(CPU)._hashed(torch.tensor(indices))
    assert list(zip(buckets.tolist(), signs.tolist(), strict=True)) == list(map(hash_of, indices))


def test_sketches_of_sparse_gradients_are_those_of_the_dense_ones(monkeypatch):
    monkeypatch.setattr(stored_gradients, "_BLOCK", 1 << 10)
    generator = torch.Generator().manual_seed(0)
    rows = torch.randint(500, (80,), generator=generator)
    values = torch.randint(-8, 9, (80, 30), generator=generator).double()
    gradient = torch.sparse_coo_tensor(rows[None], values, (500, 30), check_invariants=True)
    sparse, dense = kept(gradient, "sketch"), kept(gradient.to_dense(), "sketch")
    assert sparse.form == dense.form == "sketch"
    assert numbers(sparse) == numbers(dense)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64, torch.complex64])
def test_an_exact_gradient_is_compared_with_a_sketch_by_its_own(dtype):
    generator = torch.Generator().manual_seed(0)
    one = torch.randn(90, 100, generator=generator).to(dtype)
    other = one + 0.3 * torch.randn(90, 100, generator=generator).to(dtype)
    for exact, sketch in ((one, one), (one, other)):
        both = agreement(kept(exact, "sketch"), kept(sketch, "sketch"))
        mixed = agreement(kept(exact), kept(sketch, "sketch"))
        assert mixed.is_estimate and agreement(kept(sketch, "sketch"), kept(exact)) is not None
        assert mixed.cosine == pytest.approx(both.cosine, abs=1e-7)
        assert mixed.relative_difference == pytest.approx(both.relative_difference, abs=1e-7)


def test_a_sparse_gradient_is_compared_with_a_sketch():
    rows, values = torch.tensor([[3, 70]]), torch.ones(2, 100)
    gradient = torch.sparse_coo_tensor(rows, values, (90, 100), check_invariants=True)
    assert cosine(kept(gradient), kept(gradient.to_dense(), "sketch")) == 1.0


def test_a_sketch_shows_what_is_not_finite():
    gradient = torch.ones(10_000)
    gradient[77] = math.inf
    assert math.isnan(cosine(kept(gradient, "sketch"), kept(torch.ones(10_000), "sketch")))


def test_nothing_is_drawn_and_nothing_is_written():
    gradient = torch.ones(10_000)
    before, version = torch.get_rng_state(), gradient._version
    kept(gradient, "sketch"), kept(gradient)
    assert torch.equal(torch.get_rng_state(), before) and gradient._version == version


ROWS, COLUMNS = 64, 1_024


def _gauss(g):
    return torch.randn(ROWS, COLUMNS, generator=g)


def _rows(g):
    """A few rows of an embedding."""
    found = torch.zeros(ROWS, COLUMNS)
    found[torch.randint(ROWS, (3,), generator=g)] = torch.randn(3, COLUMNS, generator=g)
    return found


def _column(g):
    """One input that is much larger than the others."""
    return _gauss(g) * 0.01 + torch.eye(COLUMNS)[torch.randint(COLUMNS, (1,), generator=g)]


def _outer(g):
    """Of one sample: an outer product of positive numbers."""
    return torch.outer(torch.rand(ROWS, generator=g), torch.rand(COLUMNS, generator=g))


def _constant_rows(g):
    return torch.randn(ROWS, 1, generator=g).expand(ROWS, COLUMNS)


def _blocks(g):
    found = torch.zeros(ROWS, COLUMNS)
    start = int(torch.randint(8, (1,), generator=g)) * 8
    found[start : start + 8] = 1
    return found


def _heavy_tails(g):
    """A few elements are nearly all of it."""
    return torch.randn(ROWS, COLUMNS, generator=g) ** 5


@pytest.mark.parametrize("similarity", [0.0, 0.5, 0.95])
@pytest.mark.parametrize(
    "structure",
    some_on_push([_gauss, _rows, _column, _outer, _constant_rows, _blocks, _heavy_tails], 3),
)
def test_estimated_cosines_are_right_within_their_error(structure, similarity):
    generator = torch.Generator().manual_seed(0)
    errors = []
    for _ in range(60):
        one, other = structure(generator), structure(generator)
        other = similarity * one + (1 - similarity) * other
        exact = float(torch.nn.functional.cosine_similarity(one.flatten(), other.flatten(), dim=0))
        found = agreement(kept(one, "sketch"), kept(other, "sketch"))
        assert found.is_estimate
        expected = (1 - exact * exact) / math.sqrt(BUCKETS)
        errors.append((found.cosine - exact) / expected if expected > 1e-6 else 0.0)
        assert found.relative_difference == pytest.approx(
            float((one - other).norm() / max(one.norm(), other.norm())), rel=0.12, abs=1e-6
        )
    spread = math.sqrt(sum(error * error for error in errors) / len(errors))
    assert spread < 1.5, "of the error that is told"
    assert abs(sum(errors) / len(errors)) < 0.6, "bias"
    assert max(map(abs, errors)) < 6
