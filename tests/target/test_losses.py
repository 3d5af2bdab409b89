import pytest
import torch
from torch import nn
from torch.nn import functional

from gradscope.errors import GradscopeError, UserCodeError
from gradscope.target.loading import target_from_objects

NET = "model = nn.Linear(3, 4)\nbatch = torch.ones(8, 3)\n"
PAIR = "model = nn.Linear(3, 4)\nbatch = (torch.ones(8, 3), torch.zeros(8, dtype=torch.long))\n"


def outcome_of(workplace, text, **options):
    return workplace.load(text, **options).forward()


@pytest.mark.parametrize(
    ("text", "description"),
    [
        ("def compute_loss(model, batch): return model(batch[0]).sum()\ndef loss_fn(o): ...\n",
         "compute_loss(model, batch)"),
        ("loss_fn = F.cross_entropy\ncriterion = None\n", "loss_fn(output, target)"),
        ("def loss_fn(output, batch): return F.cross_entropy(output, batch[1])\n",
         "loss_fn(output, batch)"),
        ("def loss_fn(output): return output.sum()\n", "loss_fn(output)"),
        ("criterion = nn.CrossEntropyLoss()\n", "criterion(output, target)"),
        ("criterion = nn.CrossEntropyLoss\n", "criterion(output, target)"),
        ("def loss_fn(model, batch): return model(batch[0]).sum()\n", "loss_fn(model, batch)"),
        ("def gradscope_setup(): return dict(loss_fn=F.cross_entropy)\ncriterion = 1\n",
         "loss_fn(output, target)"),
    ],
)  # fmt: skip
def test_loss_is_found_by_its_names_in_order(workplace, text, description):
    outcome = outcome_of(workplace, PAIR + text)
    assert outcome.description == description
    assert not outcome.synthetic
    outcome.loss.backward()


OUTPUTS = """
from dataclasses import dataclass
@dataclass
class Output:
    logits: torch.Tensor
    loss: torch.Tensor | None = None
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.l = nn.Linear(3, 4)
    def forward(self, x):
        y = self.l(x)
        return {value}
batch = torch.ones(8, 3)
"""


@pytest.mark.parametrize(
    ("value", "description", "synthetic"),
    [
        ("y.sum()", "output", False),
        ("dict(loss=y.sum(), logits=y)", "output['loss']", False),
        ("Output(y, y.sum())", "output.loss", False),
        ("(y, y.sum())", "output[1]", False),
        ("y", "cross entropy of output and drawn classes", True),
        ("Output(y)", "cross entropy of output.logits and drawn classes", True),
        (
            "dict(n=3, mask=x > 0, logits=y)",
            "cross entropy of output['logits'] and drawn classes",
            True,
        ),
        ("(x, [y])", "cross entropy of output[1][0] and drawn classes", True),
        ("torch.complex(y, y)", "mean of squares of output", True),
    ],
)  # fmt: skip
def test_loss_in_the_output_is_found(workplace, value, description, synthetic):
    outcome = outcome_of(workplace, OUTPUTS.format(value=value))
    assert (outcome.description, outcome.synthetic) == (description, synthetic)
    outcome.loss.backward()


def test_model_output_of_transformers_gives_its_loss(workplace):
    pytest.importorskip("transformers")
    value = "ModelOutput(loss=y.sum(), logits=y)"
    text = "from transformers.utils import ModelOutput\n" + OUTPUTS.format(value=value)
    assert outcome_of(workplace, text).description == "output.loss"


def test_gate_refuses_a_synthetic_loss(workplace):
    error = workplace.error(NET, allow_guesses=False)
    assert error.what == "output is float32[8,4], not a scalar, and no loss was found"
    assert error.help.startswith("--loss cross-entropy")
    assert "def loss_fn(output, batch)" in error.help


@pytest.mark.parametrize(
    ("name", "formula"),
    [
        ("mean", lambda output, target: output.mean()),
        ("sum-squares", lambda output, target: output.square().sum()),
        ("cross-entropy", functional.cross_entropy),
    ],
)
def test_named_loss_equals_its_formula_and_wins_over_the_file(workplace, name, formula):
    target = workplace.load(PAIR + "def loss_fn(output, target): ...\n", loss=name)
    output = target.model(target.batch[0])
    assert torch.equal(target.forward().loss, formula(output, target.batch[1]))


def test_mse_equals_torchs_and_refuses_to_broadcast(workplace):
    text = "model = nn.Linear(3, 1)\nbatch = (torch.ones(8, 3), torch.arange(8.0){})\n"
    target = workplace.load(text.format("[:, None]"), loss="mse")
    expected = functional.mse_loss(target.model(target.batch[0]), target.batch[1])
    assert torch.equal(target.forward().loss, expected)
    error = workplace.error(text.format(""), loss="mse")
    assert error.cause == "the output is float32[8,1], the target float32[8]"


def test_cross_entropy_of_a_sequence_counts_every_token(workplace):
    text = (
        "model = nn.Embedding(5, 5)\n"
        "batch = (torch.arange(4).reshape(2, 2), torch.zeros(2, 2, dtype=torch.long))\n"
    )
    target = workplace.load(text, loss="cross-entropy")
    output = target.model(target.batch[0])
    expected = functional.cross_entropy(output.transpose(1, 2), target.batch[1])
    assert target.forward().loss.item() == pytest.approx(expected.item())


def test_cross_entropy_without_target_shows_the_input_to_add(workplace):
    error = workplace.error(NET, loss="cross-entropy")
    assert error.what == "--loss cross-entropy needs a target, but the batch has none"
    assert error.help.endswith(": --input 8,3 --input int64[0,4]:8")


def test_chosen_loss_function_wins(workplace):
    text = PAIR + "def loss_fn(o, t): ...\ndef mine(output): return output.sum()\n"
    assert outcome_of(workplace, text, loss="mine").description == "mine(output)"


def test_batch_is_its_own_target_only_in_its_shape(workplace):
    text = "model = nn.Linear(3, {})\nbatch = torch.ones(8, 3)\ncriterion = nn.MSELoss()\n"
    assert outcome_of(workplace, text.format(3)).description == "criterion(output, batch)"
    error = workplace.error(text.format(4))
    assert error.what == "criterion needs a target, but the batch has none"


def test_weights_of_a_criterion_follow_the_dtype(workplace):
    text = PAIR + "criterion = nn.CrossEntropyLoss(weight=torch.ones(4))\n"
    assert outcome_of(workplace, text, dtype="float64").loss.dtype is torch.float64


@pytest.mark.parametrize("vector", ["ones", "randn"])
def test_grad_output_has_the_shape_of_the_output_and_repeats(workplace, vector):
    target = workplace.load(NET, grad_output=vector)
    first, second = target.forward(), target.forward()
    assert first.grad_output.shape == first.loss.shape == (8, 4)
    assert torch.equal(first.grad_output, second.grad_output)
    assert first.description == f"output with grad_output {vector}"


def test_grad_output_from_a_file_has_to_fit(workplace):
    torch.save(torch.full((8, 4), 2.0), "v.pt")
    torch.save(torch.ones(4), "small.pt")
    assert torch.equal(
        outcome_of(workplace, NET, grad_output="v.pt").grad_output, torch.full((8, 4), 2.0)
    )
    error = workplace.error(NET, grad_output="small.pt")
    assert error.what == "--grad-output is float32[4], but output is float32[8,4]"


def test_loss_and_grad_output_exclude_each_other(workplace):
    assert "mutually exclusive" in workplace.error(NET, loss="mean", grad_output="ones").what


@pytest.mark.parametrize(
    ("body", "what", "help_"),
    [
        ("return output", "loss_fn(output) is float32[8,4], not a scalar", "reduce it"),
        ("return output.sum().item()", "loss_fn(output) is float, expected a tensor", "loss.item"),
        ("output.sum()", "loss_fn(output) is NoneType, expected a tensor", "return loss"),
        ("return output.detach().sum()", "loss_fn(output) has no grad_fn", "detach()"),
        ("return output.sum() * 1j", "loss_fn(output) is complex64[], and", "make it real"),
    ],
)
def test_each_bad_loss_has_its_own_line(workplace, body, what, help_):
    error = workplace.error(NET + f"def loss_fn(output):\n    {body}\n")
    assert error.what.startswith(what)
    assert help_ in error.help


def test_loss_in_a_dict_is_taken(workplace):
    text = NET + "def compute_loss(model, batch): return dict(loss=model(batch).sum(), n=1)\n"
    assert outcome_of(workplace, text).loss.dim() == 0


def test_nan_loss_is_no_error(workplace):
    text = NET + "def loss_fn(output): return output.sum() * float('nan')\n"
    assert outcome_of(workplace, text).loss.isnan()


def test_frozen_model_is_told_by_its_count(workplace):
    error = workplace.error(NET + "model.requires_grad_(False)\n")
    assert error.what == "0 of 2 parameters require grad"


def test_model_without_parameters_is_told(workplace):
    error = workplace.error("model = nn.ReLU()\nbatch = torch.ones(2)\n")
    assert error.what == "ReLU has no parameters"
    assert "nn.ModuleList" in error.help


def test_unregistered_parameters_still_train(workplace):
    text = """
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.layers = [nn.Linear(3, 1)]
        def forward(self, x): return self.layers[0](x)
    batch = torch.ones(2, 3)
    """
    assert outcome_of(workplace, text).loss.requires_grad


def test_gradients_switched_off_are_the_cause(workplace):
    with torch.no_grad():
        error = workplace.error(NET + "def loss_fn(output): return output.sum()\n")
    assert error.cause.startswith("gradients are disabled")


def test_loss_that_raises_is_told_with_its_inputs(workplace):
    error = workplace.error(PAIR + "def loss_fn(output, target): return output @ target\n")
    assert isinstance(error, UserCodeError)
    assert error.what.startswith("loss_fn(output, target) failed with float32[8,4], int64[8]")


def test_loss_with_more_arguments_is_pointed_to_compute_loss(workplace):
    error = workplace.error(NET + "criterion = nn.TripletMarginLoss()\n")
    assert error.what == "criterion needs 3 arguments: anchor, positive, negative"
    assert "compute_loss" in error.help


def test_misspelled_loss_name_offers_the_nearest(workplace):
    error = workplace.error(PAIR, loss="cross-entropi")
    assert error.what == "unknown --loss 'cross-entropi'"
    assert error.help == "did you mean 'cross-entropy'?"


def test_unknown_loss_lists_what_may_be_given(workplace):
    error = workplace.error(PAIR, loss="foo")
    assert error.what.endswith("has no 'foo'")
    assert error.help == (
        "--loss takes cross-entropy, mse, mean, sum-squares, or a function of the file"
    )


def test_misspelled_function_of_the_file_offers_the_nearest(workplace):
    error = workplace.error(PAIR + "def own_loss(y, t): return y.sum()\n", loss="own_los")
    assert error.help == "did you mean 'own_loss'?"


TERMS = "dict(loss_cls=y.sum(), loss_box=y.square().sum(){more})"


def test_losses_of_a_dict_are_summed(workplace):
    text = OUTPUTS.format(value=TERMS.format(more=", boxes=y"))
    outcome = outcome_of(workplace, text)
    assert outcome.description == "sum of output['loss_cls'], output['loss_box']"
    target = workplace.load(text)
    terms = target.model(torch.ones(8, 3))
    expected = terms["loss_cls"] + terms["loss_box"]
    assert torch.equal(target.forward().loss, expected)
    named = outcome_of(workplace, text, loss="mean").description
    assert named == "mean of sum of output['loss_cls'], output['loss_box']"


def test_total_loss_is_not_added_to_its_terms(workplace):
    text = OUTPUTS.format(value=TERMS.format(more=", total_loss=y.mean()"))
    assert outcome_of(workplace, text).description == "output['total_loss']"


@pytest.mark.parametrize("value", ["(y.sum(), y.mean())", "dict(a=y.sum(), b_loss=y.mean())"])
@pytest.mark.parametrize("loss", [None, "mean", "sum-squares"])
def test_several_scalars_are_not_chosen_among(workplace, value, loss):
    error = workplace.error(OUTPUTS.format(value=value), loss=loss)
    assert (
        "the output holds 2 scalars, and it is ambiguous which is the loss: output[" in error.what
    )
    assert "def compute_loss(model, batch)" in error.help


@pytest.mark.parametrize(
    ("value", "what", "help_"),
    [
        ("dict(reg=o.sum(), cls=o.mean())", "a dict of 2 tensors: reg, cls", "return their sum"),
        ("(o.sum(), o.mean())", "a tuple of 2 tensors: float32[], float32[]", "return their sum"),
        ("(o.sum(), o)", "a tuple of 2 tensors: float32[], float32[8,4]", "return only the loss"),
        ("{'loss': {'a': o.sum()}}", "a dict of 1 tensor: a", "return only the loss"),
    ],
)
def test_loss_function_that_returns_several_is_told_so(workplace, value, what, help_):
    error = workplace.error(NET + f"def loss_fn(o): return {value}\n")
    assert (error.what, error.help) == (f"loss_fn(output) returned {what}", help_)


@pytest.mark.parametrize(
    ("model", "batch", "help_"),
    [
        ("nn.Sequential(nn.Embedding(9, 6), nn.Linear(6, 5))",
         "torch.arange(8).reshape(2, 4)", "--input int64[0,8]:2,4 --input int64[0,5]:2,4"),
        ("nn.Conv1d(3, 5, 1)", "torch.ones(2, 3, 4)", "--input 2,3,4 --input int64[0,5]:2,4"),
        ("nn.Linear(3, 5)", "dict(input=torch.ones(2, 3))", "--input labels=int64[0,5]:2"),
    ],
)  # fmt: skip
def test_suggested_target_has_the_classes_of_the_output(workplace, model, batch, help_):
    error = workplace.error(f"model = {model}\nbatch = {batch}\n", loss="cross-entropy")
    assert error.help.endswith(f": {help_}")


@pytest.mark.parametrize(
    ("classes", "length", "reading"),
    [(6, 5, ""), (6, 6, ", classes in dimension 1"), (5, 5, ", classes in dimension 1")],
)
def test_class_dimension_is_torchs_where_it_fits(workplace, classes, length, reading):
    text = f"""
    model = nn.Sequential(nn.Embedding(5, 7), nn.Linear(7, {classes}))
    batch = torch.randint(5, (4, {length})), torch.randint(5, (4, {length}))
    """
    target = workplace.load(text, loss="cross-entropy")
    outcome = target.forward()
    assert outcome.description == f"cross-entropy(output, target){reading}"
    output, wanted = target.model(target.batch[0]), target.batch[1]
    if not reading:
        output = output.movedim(-1, 1)
    expected = functional.cross_entropy(output, wanted)
    torch.testing.assert_close(outcome.loss, expected)


@pytest.mark.parametrize("names", ["target, prediction", "y_true, y_pred", "labels, logits"])
def test_loss_with_the_target_first_gets_it_first(workplace, names):
    target, output = names.split(", ")
    body = f"return F.cross_entropy({output}, {target})"
    outcome = outcome_of(workplace, PAIR + f"def loss_fn({names}): {body}\n")
    assert outcome.description == "loss_fn(target, output)"
    expected = outcome_of(workplace, PAIR + "loss_fn = F.cross_entropy\n")
    assert torch.equal(outcome.loss, expected.loss)


@pytest.mark.parametrize("name", ["net", "agent", "policy", "module"])
def test_loss_that_takes_the_model_is_known_by_its_first_parameter(workplace, name):
    text = PAIR + f"def loss_fn({name}, batch): return {name}(batch[0]).sum()\n"
    assert outcome_of(workplace, text).description == "loss_fn(model, batch)"


def test_named_losses_are_open_to_python():
    model, batch = nn.Linear(3, 4), (torch.ones(8, 3), torch.zeros(8, dtype=torch.long))
    outcome = target_from_objects(model, batch, "cross-entropy").forward()
    assert torch.equal(outcome.loss, functional.cross_entropy(model(batch[0]), batch[1]))
    with pytest.raises(GradscopeError, match=r"unknown loss_fn 'crossentropy'\n  help: did you"):
        target_from_objects(model, batch, "crossentropy")


STEP = """
class Net(nn.Linear):
    def training_step(self, batch, batch_idx):
        x, y = batch
        return {value}
model = Net(3, 4)
batch = torch.ones(8, 3), torch.zeros(8, 4)
"""


@pytest.mark.parametrize("value", ["F.mse_loss(self(x), y)", "dict(loss=F.mse_loss(self(x), y))"])
def test_models_own_training_step_gives_the_loss(workplace, value):
    target = workplace.load(STEP.format(value=value))
    outcome = target.forward()
    assert outcome.description == "model.training_step(batch, 0)"
    expected = functional.mse_loss(target.model(torch.ones(8, 3)), torch.zeros(8, 4))
    assert torch.equal(outcome.loss, expected)


def test_loss_of_the_file_wins_over_the_training_step(workplace):
    text = STEP.format(value="0") + "loss_fn = F.mse_loss\n"
    assert outcome_of(workplace, text).description == "loss_fn(output, target)"


def test_inference_mode_is_not_mistaken_for_detach(workplace):
    text = """
    class Net(nn.Linear):
        @torch.inference_mode()
        def forward(self, x): return super().forward(x)
    model = Net(3, 4)
    batch = torch.ones(8, 3)
    """
    for more in ({}, {"loss": "mean"}):
        error = workplace.error(text, **more)
        assert "torch.inference_mode()" in error.cause
        assert "detach" not in str(error)


def test_gradients_left_off_by_the_file_are_noted(workplace):
    try:
        target = workplace.load("torch.set_grad_enabled(False)\n" + NET)
    finally:
        torch.set_grad_enabled(True)
    note = "the file leaves gradients disabled; your own training would raise"
    assert target.notes == (note,)
