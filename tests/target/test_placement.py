import pytest
import torch
from safetensors.torch import save_file
from torch import nn

from gradscope.errors import GradscopeError
from gradscope.target.loading import target_from_objects

NET = "model = nn.Linear(3, 1)\nbatch = torch.ones(2, 3)\n"


def weights():
    return {"weight": torch.full((1, 3), 2.0), "bias": torch.zeros(1)}


@pytest.mark.parametrize("prefix", ["", "module.", "_orig_mod."])
@pytest.mark.parametrize("key", [None, "state_dict", "model"])
def test_checkpoint_is_loaded(workplace, prefix, key):
    state = {prefix + name: tensor for name, tensor in weights().items()}
    torch.save(state if key is None else {key: state, "epoch": 3}, "w.pt")
    assert torch.equal(workplace.load(NET, checkpoint="w.pt").model.weight, torch.full((1, 3), 2.0))


def test_safetensors_checkpoint_is_loaded(workplace):
    save_file(weights(), "w.safetensors")
    model = workplace.load(NET, checkpoint="w.safetensors").model
    assert torch.equal(model.weight, torch.full((1, 3), 2.0))


def test_checkpoint_of_another_model_says_what_differs(workplace):
    torch.save({"weight": torch.ones(2, 3), "extra": torch.ones(1)}, "w.pt")
    error = workplace.error(NET, checkpoint="w.pt")
    assert error.what == "'w.pt' does not fit Linear"
    assert error.cause == (
        "1 missing (bias); 1 not in the model (extra); "
        "1 of another shape (weight (2, 3) for (1, 3))"
    )


def test_checkpoint_with_a_whole_model_is_refused(workplace):
    torch.save(nn.Linear(3, 1), "w.pt")
    assert "would run code" in workplace.error(NET, checkpoint="w.pt").cause


def test_missing_checkpoint_offers_the_nearest(workplace):
    torch.save(weights(), "weights.pt")
    error = workplace.error(NET, checkpoint="wieghts.pt")
    assert error.help == "did you mean 'weights.pt'?"


@pytest.mark.parametrize("dtype", ["float64", "bfloat16", "torch.float64"])
def test_dtype_reaches_parameters_and_inputs(workplace, dtype):
    target = workplace.load(NET, dtype=dtype)
    assert target.model.weight.dtype is target.batch.dtype is getattr(torch, dtype.split(".")[-1])


@pytest.mark.parametrize(
    ("options", "what", "hint"),
    [
        ({"dtype": "flaot32"}, "unknown --dtype 'flaot32'", "did you mean 'float32'?"),
        ({"dtype": "bf16"}, "unknown --dtype 'bf16'", "did you mean 'bfloat16'?"),
        ({"dtype": "int64"}, "unknown --dtype 'int64'", None),
        ({"device": "gpu"}, "cannot use --device 'gpu'", "did you mean 'cuda'?"),
        ({"device": "abacus"}, "cannot use --device 'abacus'", "--device cpu works everywhere"),
    ],
)
def test_unknown_choice_is_named(workplace, options, what, hint):
    error = workplace.error(NET, **options)
    assert error.what == what
    assert hint in (None, error.help)


def test_seed_decides_the_initial_weights(workplace):
    one, same, other = (workplace.load(NET, seed=seed).model.weight for seed in (1, 1, 2))
    assert torch.equal(one, same)
    assert not torch.equal(one, other)


def test_meta_device_is_refused(workplace):
    error = workplace.error("model = nn.Linear(3, 1)\nbatch = torch.ones(2, 3)\n", device="meta")
    assert (error.what, error.help) == (
        "a model on the meta device has no values",
        "give --device cpu",
    )


def test_model_on_the_meta_device_is_refused(workplace):
    text = "model = nn.Sequential(nn.Linear(3, 1, device='meta'))\nbatch = torch.ones(2, 3)\n"
    error = workplace.error(text)
    assert error.what == "a model on the meta device has no values"
    assert error.cause == "'0.weight' is on the meta device"
    with pytest.raises(GradscopeError, match="a model on the meta device has no values"):
        target_from_objects(nn.Linear(3, 1, device="meta"), torch.ones(2, 3))
