"""Lazy layers, which take the shapes of their parameters from the first batch."""

from torch.nn.parameter import is_lazy

from gradscope.target import members
from gradscope.target.forward import Forward

NOTE = "lazy layers took their shapes from the batch, in one forward in eval mode"


def give_shapes(forward: Forward) -> bool:
    """Run the model once if it has lazy parameters; return whether it did.

    It runs in eval mode, which leaves running statistics as they are.
    """
    model = forward.model
    if not any(map(is_lazy, members.parameters(model))):
        return False
    modes = [(module, module.training) for module in model.modules()]
    try:
        model.eval()
        forward()
    finally:
        for module, is_training in modes:
            module.training = is_training
    return True
