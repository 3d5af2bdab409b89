import pytest
import torch

from gradscope.errors import GradscopeError
from gradscope.target.batches import make_inputs
from gradscope.target.notation import parse_input


@pytest.mark.parametrize(
    ("text", "name", "dtype", "bounds", "dims"),
    [
        ("1,3,224,224", None, "float32", (None, None), (1, 3, 224, 224)),
        ("int64[0,50257]:2,128", None, "int64", (0, 50257), (2, 128)),
        ("input_ids=int64[0,50257]:2,128", "input_ids", "int64", (0, 50257), (2, 128)),
        ("mask=bool:2,128", "mask", "bool", (None, None), (2, 128)),
        ("x=4", "x", "float32", (None, None), (4,)),
        ("float64[-1,1]:3", None, "float64", (-1, 1), (3,)),
        ("bfloat16: 2, 3", None, "bfloat16", (None, None), (2, 3)),
    ],
)
def test_specification_is_parsed(text, name, dtype, bounds, dims):
    spec = parse_input(text)
    assert (spec.name, spec.dtype, (spec.low, spec.high), spec.dims) == (name, dtype, bounds, dims)


@pytest.mark.parametrize(
    "text", ["", "a,b", "int64:", "1,3,", "x=", "(1,3)", "int64[0]:2", "9" * 5000]
)
def test_malformed_specification_shows_the_grammar(text):
    with pytest.raises(GradscopeError, match="cannot read --input") as caught:
        parse_input(text)
    assert "[name=]" in caught.value.cause


def test_unknown_dtype_offers_the_nearest():
    with pytest.raises(GradscopeError) as caught:
        parse_input("flaot32:2")
    assert caught.value.help == "did you mean 'float32'?"


@pytest.mark.parametrize("text", ["int64[5,5]:2", "float32[1,0]:2", "int64[a,b]:2"])
def test_bad_range_is_refused(text):
    with pytest.raises(GradscopeError, match="range"):
        parse_input(text)


def test_values_follow_the_type():
    floats, integers, flags = make_inputs(
        ("1000", "int64[3,7]:1000", "bool:4"), seed=0, vocabulary=None
    )
    assert abs(float(floats.mean())) < 0.2
    assert set(integers.tolist()) == {3, 4, 5, 6}
    assert flags.all()


def test_seed_decides_and_leaves_the_global_stream_alone():
    before = torch.get_rng_state()
    one = make_inputs(("8",), seed=1, vocabulary=None)
    assert torch.equal(one, make_inputs(("8",), seed=1, vocabulary=None))
    assert not torch.equal(one, make_inputs(("8",), seed=2, vocabulary=None))
    assert torch.equal(before, torch.get_rng_state())


def test_named_inputs_make_a_dict_and_do_not_mix():
    assert list(make_inputs(("a=2", "b=3"), seed=0, vocabulary=None)) == ["a", "b"]
    with pytest.raises(GradscopeError, match="do not mix"):
        make_inputs(("a=2", "3"), seed=0, vocabulary=None)


def test_integers_without_a_range_take_the_vocabulary():
    assert make_inputs(("int64:500",), seed=0, vocabulary=4).max() == 3
    with pytest.raises(GradscopeError) as caught:
        make_inputs(("int64:500",), seed=0, vocabulary=None)
    assert caught.value.help == "--input int64[0,10]:500"
