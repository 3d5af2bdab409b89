import pytest
from torch import nn

from gradscope.errors import UserCodeError

BATCH = "batch = torch.ones(2, 3)\n"


def test_build_model_comes_before_model_and_net(workplace):
    target = workplace.load(
        BATCH + "def build_model(): return nn.Linear(3, 1)\n"
        "model = nn.Linear(3, 2)\nnet = nn.Linear(3, 3)\n"
    )
    assert target.model.out_features == 1


@pytest.mark.parametrize(
    "line", ["model = make()", "model = make", "net = make()", "anything = make()"]
)
def test_model_is_found_as_instance_or_class(workplace, line):
    target = workplace.load(f"{BATCH}def make(): return nn.Linear(3, 1)\n{line}\n")
    assert target.model.out_features == 1


def test_losses_activations_and_parts_are_no_candidates(workplace):
    target = workplace.load(
        BATCH + "act = nn.ReLU()\nmse = nn.MSELoss()\nencoder = nn.Linear(3, 3)\n"
        "whole = nn.Sequential(encoder, act, nn.Linear(3, 1))\nsame = whole\n"
    )
    assert type(target.model) is nn.Sequential
    assert "whole" in target.notes[0]


CLASSES = """
class Block(nn.Linear):
    def __init__(self): super().__init__(3, 3)
class MyLoss(nn.Module):
    pass
def make(): return Block()
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.block = make()
    def forward(self, x): return self.block(x)
"""


def test_only_class_that_is_no_part_of_another_is_taken(workplace):
    target = workplace.load(BATCH + CLASSES)
    assert type(target.model).__name__ == "Net"
    assert "Net" in target.notes[0]


def test_classes_imported_from_elsewhere_are_no_candidates(workplace):
    target = workplace.load(BATCH + "from torch.nn import ReLU, Transformer\n" + CLASSES)
    assert type(target.model).__name__ == "Net"


def test_several_models_are_listed_with_their_lines(workplace):
    error = workplace.error("encoder = nn.Linear(3, 3)\ndecoder = nn.Linear(3, 3)\n")
    assert error.what == "2 possible models: encoder (line 4), decoder (line 5)"
    assert error.help == "choose one: --model decoder"


def test_several_classes_are_listed(workplace):
    error = workplace.error("class A(nn.Module): pass\nclass B(nn.Module): pass\n")
    assert error.what == "2 possible models: A (class), B (class)"


def test_chosen_model_wins(workplace):
    text = BATCH + "encoder = nn.Linear(3, 3)\ndecoder = nn.Linear(3, 2)\n"
    assert workplace.load(text, model="decoder").model.out_features == 2
    assert workplace.load(text, spec="model.py:encoder").model.out_features == 3


def test_model_given_twice_is_an_error(workplace):
    assert "two models are specified" in workplace.error("", spec="model.py:a", model="b").what


def test_no_model_lists_what_was_looked_for(workplace):
    error = workplace.error("x = 1\n")
    assert error.what == (
        "found no model in 'model.py' "
        "(looked for gradscope_setup, build_model, model, net, a single nn.Module)"
    )


def test_classes_that_need_arguments_are_listed_with_a_command(workplace):
    error = workplace.error(
        "class Net(nn.Module):\n    def __init__(self, hidden: int): pass\n", allow_guesses=False
    )
    assert error.cause == "its nn.Module classes need arguments: Net(hidden)"
    assert error.help == 'give the target as "model.py:Net(hidden=64)", or --allow-guesses'


def test_class_that_needs_a_config_object_is_given_a_factory(workplace):
    error = workplace.error("class GPT(nn.Module):\n    def __init__(self, config): pass\n")
    assert error.help == "write in the file:  def build_model(): return GPT(config)"


def test_factory_that_needs_arguments_says_which(workplace):
    error = workplace.error(
        "def build_model(hidden): return nn.Linear(hidden, 1)\n", allow_guesses=False
    )
    assert error.what == "build_model(hidden) needs arguments"
    assert error.help == 'give the target as "model.py:build_model(hidden=64)", or --allow-guesses'


def test_type_error_inside_a_factory_keeps_its_traceback(workplace):
    error = workplace.error("def build_model(): return len(3)\n")
    assert isinstance(error, UserCodeError)
    assert isinstance(error.__cause__, TypeError)
    assert error.what.startswith("build_model() failed: TypeError")


def test_arguments_on_the_command_line_reach_the_factory(workplace):
    text = BATCH + "def make(inputs, *, outputs=1): return nn.Linear(inputs, outputs)\n"
    assert workplace.load(text, spec="model.py:make(3, outputs=7)").model.out_features == 7


def test_arguments_that_do_not_fit_are_told_with_the_signature(workplace):
    error = workplace.error("def make(inputs): ...\n", spec="model.py:make(3, 4)")
    assert error.what == "make(3, 4) does not fit make(inputs)"


def test_what_is_no_module_is_named_with_its_type(workplace):
    error = workplace.error("cfg = {}\n", spec="model.py:cfg")
    assert error.what == (
        "'model.py:cfg' is dict, expected torch.nn.Module or a callable returning one"
    )


def test_factory_without_return_is_told(workplace):
    error = workplace.error("def build_model(): nn.Linear(1, 1)\n")
    assert error.what == "build_model() of 'model.py' returned NoneType, expected torch.nn.Module"
    assert error.help == "end it with: return model"


def test_unknown_name_offers_the_nearest(workplace):
    error = workplace.error("network = nn.Linear(1, 1)\n", spec="model.py:netwrk")
    assert error.what == "'model.py' has no 'netwrk'"
    assert error.help == "did you mean 'network'?"


def test_setup_wins_over_all_names(workplace):
    target = workplace.load(
        """
        model = nn.Linear(9, 9)
        def gradscope_setup():
            model = nn.Linear(3, 1)
            return dict(
                model=model, batch=(torch.ones(2, 3), torch.zeros(2, 1)),
                loss_fn=F.mse_loss, optimizer=torch.optim.SGD(model.parameters(), lr=0.1),
            )
        """
    )
    assert target.model.in_features == 3
    assert target.optimizer is not None
    assert target.forward().description == "loss_fn(output, target)"


def test_setup_can_be_chosen_with_arguments(workplace):
    text = """
    def small(width):
        return dict(model=nn.Linear(width, 1), batch=torch.ones(2, width))
    """
    assert workplace.load(text, spec="model.py:small(5)").model.in_features == 5


def test_setup_with_an_unknown_key_offers_the_nearest(workplace):
    error = workplace.error("def gradscope_setup(): return dict(modle=1)\n")
    assert error.what == "gradscope_setup() returned the unknown key 'modle'"
    assert error.help == "did you mean 'model'?"


def test_model_is_put_into_the_mode_asked_for(workplace):
    text = BATCH + "model = nn.Linear(3, 1).eval()\n"
    assert workplace.load(text).model.training
    assert not workplace.load(text, mode="eval").model.training


def test_optimizer_is_built_on_the_model(workplace):
    text = (
        BATCH + "model = nn.Linear(3, 1)\n"
        "def build_optimizer(model): return torch.optim.Adam(model.parameters())\n"
    )
    target = workplace.load(text)
    assert target.optimizer.param_groups[0]["params"][0] is target.model.weight


def test_module_level_optimizer_counts_only_for_its_own_model(workplace):
    text = (
        BATCH + "one = nn.Linear(3, 1)\ntwo = nn.Linear(3, 1)\n"
        "optimizer = torch.optim.SGD(one.parameters(), lr=0.1)\n"
    )
    assert workplace.load(text, model="one").optimizer is not None
    assert workplace.load(text, model="two").optimizer is None


def test_factory_is_not_told_to_call_itself(workplace):
    error = workplace.error("def build_model(cfg): return nn.Linear(3, 1)\n")
    assert error.help == (
        "write in the file:  def small_model(): return build_model(cfg)  "
        "and give --model small_model"
    )


def test_batch_factory_gets_its_arguments_by_its_own_option(workplace):
    text = "model = nn.Linear(3, 1)\ndef build_batch(size): return torch.ones(size, 3)\n"
    error = workplace.error(text)
    assert error.help == '--batch "build_batch(size=64)"'
    assert workplace.load(text, batch="build_batch(size=64)").batch.shape == (64, 3)
