"""An exception in backward is reported at the line that raised it (GS506)."""

import pytest

from tests.rules.raising import check

FUNCTION = """
class Function(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x.clone()

    @staticmethod
    def backward(ctx, grad):
        {body}

class Uses(Net):
    def forward(self, x):
        return self.b(Function.apply(self.a(x)))  # also
model, loss_fn = Uses(), F.mse_loss
"""

IN_BACKWARD = {
    "a wrong shape": FUNCTION.format(body="return grad[:, :3]  # <-"),
    "too many gradients": FUNCTION.format(body="return grad, grad  # <-"),
    "its code raises": FUNCTION.format(body="return grad @ ctx.saved_tensors[0]  # <-"),
    "a hook": """
def check_gradient(gradient):
    assert gradient.isnan().any()  # <-

class Hooked(Net):
    def forward(self, x):
        hidden = torch.tanh(self.a(x))  # also
        hidden.register_hook(check_gradient)
        return self.b(hidden)
model, loss_fn = Hooked(), F.mse_loss
""",
}


@pytest.mark.parametrize("text", IN_BACKWARD.values(), ids=IN_BACKWARD)
def test_an_exception_in_backward_points_to_the_line_that_raised(inspect_file, text):
    finding = check(inspect_file, "GS506", text)
    assert finding.message.startswith("backward raised ")
