import pytest
import torch

from gradscope.errors import UserCodeError

NET = "model = nn.Linear(3, 1)\n"


@pytest.mark.parametrize(
    "text",
    [
        "def build_batch(): return torch.full((2, 3), 5.0)\nbatch = torch.zeros(1)\n",
        "batch = torch.full((2, 3), 5.0)\nexample_inputs = torch.zeros(1)\n",
        "example_inputs = torch.full((2, 3), 5.0)\ndataloader = []\n",
        "dataloader = torch.utils.data.DataLoader(torch.full((4, 3), 5.0), batch_size=2)\n",
        "train_loader = iter([torch.full((2, 3), 5.0)])\n",
        "def train_dataloader():\n    yield torch.full((2, 3), 5.0)\n",
        "def gradscope_setup(): return dict(batch=torch.full((2, 3), 5.0))\nbatch = 1\n",
    ],
)
def test_batch_is_found_by_its_names_in_order(workplace, text):
    target = workplace.load(NET + text)
    assert torch.equal(target.batch, torch.full((2, 3), 5.0))


def test_command_line_wins_over_the_file(workplace):
    text = NET + "batch = torch.zeros(9, 3)\nother = torch.ones(4, 3)\n"
    torch.save(torch.ones(6, 3), "saved.pt")
    assert workplace.load(text, inputs=("5,3",)).batch.shape == (5, 3)
    assert workplace.load(text, batch="other").batch.shape == (4, 3)
    assert workplace.load(text, batch="saved.pt").batch.shape == (6, 3)


def test_batch_given_twice_is_an_error(workplace):
    assert "twice" in workplace.error(NET, batch="b", inputs=("1",)).what


def test_empty_loader_is_told(workplace):
    error = workplace.error(NET + "train_loader = iter([])\n")
    assert error.what == "'train_loader' of 'model.py' is empty: it contains no batch"


@pytest.mark.parametrize(
    ("text", "options"),
    [("", {"inputs": ("0,3",)}), ("batch = torch.zeros(0, 3), torch.zeros(0)\n", {})],
)
def test_batch_without_elements_is_told(workplace, text, options):
    error = workplace.error(NET + text, **options)
    assert error.what.startswith("the batch is empty: float32[0,3]")


def test_batch_with_one_empty_tensor_is_taken(workplace):
    text = NET + "batch = torch.zeros(2, 3), torch.zeros(0)\n"
    assert workplace.load(text).batch[0].shape == (2, 3)


def test_loader_that_raises_keeps_the_users_exception(workplace):
    error = workplace.error(NET + "def dataloader():\n    yield 1 / 0\n")
    assert isinstance(error, UserCodeError)
    assert isinstance(error.__cause__, ZeroDivisionError)


@pytest.mark.parametrize(
    ("layer", "guess"),
    [
        ("nn.Conv2d(3, 8, 3)", "4,3,32,32"),
        ("nn.Conv2d(1, 8, 3)", "4,1,28,28"),
        ("nn.Conv1d(4, 8, 3)", "4,4,128"),
        ("nn.Linear(10, 2)", "8,10"),
        ("nn.Embedding(50, 2)", "int64[0,50]:4,16"),
        ("nn.GRU(6, 2)", "16,4,6"),
    ],
)
def test_no_batch_gives_an_example_that_runs(workplace, layer, guess):
    text = f"model = nn.Sequential({layer})\n"
    error = workplace.error(text, allow_guesses=False)
    assert error.what == "no batch for Sequential.forward(self, input)"
    assert error.help == f"--input {guess}, or --allow-guesses"
    assert workplace.load(text, inputs=(guess,)).forward().loss.isfinite()


def test_no_batch_names_every_input(workplace):
    error = workplace.error(
        """
        class Net(nn.Module):
            def __init__(self):
                super().__init__()
                self.e = nn.Embedding(7, 2)
            def forward(self, ids, mask, scale=1.0): ...
        """,
        allow_guesses=False,
    )
    assert error.what == "no batch for Net.forward(self, ids, mask, scale=1.0)"
    assert error.help == "--input ids=int64[0,7]:4,16 --input mask=SHAPE"


def test_language_models_learn_from_their_own_example(workplace):
    pytest.importorskip("transformers")
    target = workplace.load(
        """
        from transformers import GPT2Config, GPT2LMHeadModel
        model = GPT2LMHeadModel(GPT2Config(n_layer=1, n_head=2, n_embd=8, vocab_size=32))
        """
    )
    outcome = target.forward()
    assert outcome.description == "output.loss"
    assert not outcome.synthetic


def test_model_without_an_example_of_its_own_kind_needs_a_batch(workplace):
    pytest.importorskip("transformers")
    error = workplace.error(
        """
        from transformers import ViTConfig, ViTModel
        model = ViTModel(ViTConfig(hidden_size=8, num_hidden_layers=1, num_attention_heads=1,
                                   intermediate_size=8))
        """,
        allow_guesses=False,
    )
    assert error.what.startswith("no batch for ViTModel.forward(self, pixel_values")


def test_dropped_keys_are_noted(workplace):
    target = workplace.load(
        "class Net(nn.Linear):\n    def forward(self, x): return super().forward(x)\n"
        "model = Net(3, 1)\nbatch = dict(x=torch.ones(2, 3), name=['a', 'b'])\n"
    )
    assert target.notes == ("batch key 'name' is dropped: Net.forward(self, x) does not take it",)


@pytest.mark.parametrize("parameters", ["input_ids, mask=None", "input_ids=None, **kwargs"])
def test_misspelt_input_is_told_the_parameter_that_was_meant(workplace, parameters):
    text = f"""
    class Net(nn.Embedding):
        def forward(self, {parameters}): return super().forward(input_ids)
    model = Net(5, 2)
    """
    error = workplace.error(text, inputs=("inptu_ids=int64:2,3",))
    assert error.what == "--input 'inptu_ids' is no parameter of Net.forward"
    assert error.help == "did you mean 'input_ids'?"
    names = ("input_ids=int64:2,3", "targets=2,3,2")
    assert set(workplace.load(text, inputs=names).batch) == {"input_ids", "targets"}


def test_file_of_another_kind_is_told_the_suffixes(workplace):
    (workplace.folder / "b.npy").write_bytes(b"")
    error = workplace.error("model = nn.Linear(3, 1)\n", batch="b.npy")
    assert error.what == "cannot read 'b.npy' as a batch"
    assert error.help == "use one of .pt, .pth, .npz, .safetensors, .json"


@pytest.mark.parametrize(
    ("value", "kind"),
    [("[[1, 2], [3, 4]]", "a list"), ("torch.tensor([[1]]).numpy()", "an ndarray")],
)
def test_numbers_outside_of_tensors_are_named(workplace, value, kind):
    text = f"""
    class Net(nn.Embedding):
        def forward(self, ids): return super().forward(ids.long())
    model = Net(5, 2)
    batch = dict(ids={value})
    """
    error = workplace.error(text)
    assert error.cause == f"batch['ids'] is {kind}"
    assert error.help == "make it a tensor: torch.tensor(...)"
