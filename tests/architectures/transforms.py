"""Networks that change how autograd runs: precision, checkpoints, transforms, own hooks."""

import torch
import transformers as tf
from torch import Tensor, nn
from torch.func import functional_call, grad, stack_module_state, vmap
from torch.nn import functional

from tests.architectures.case import ArchitectureCase, Built
from tests.architectures.language import GROUPED, gpt2, language_model
from tests.architectures.mechanisms import regression
from tests.architectures.perception import vit


def gpt2_bfloat16() -> Built:
    model, batch = gpt2()
    return model.bfloat16(), batch


def gpt2_float64() -> Built:
    model, batch = gpt2()
    return model.double(), batch


def llama_checkpointed() -> Built:
    model = tf.LlamaForCausalLM(tf.LlamaConfig(**GROUPED))
    model.activation_checkpointing_enable()
    return language_model(model)


def llama_eager_attention() -> Built:
    config = tf.LlamaConfig(**GROUPED, attn_implementation="eager")
    return language_model(tf.LlamaForCausalLM(config))


def vit_frozen_backbone() -> Built:
    model, batch = vit()
    model.vit.requires_grad_(False)
    return model, batch


class Autocast(nn.Module):
    """float32 weights, of which autocast makes bfloat16 copies in the forward."""

    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(8, 16), nn.LayerNorm(16), nn.GELU(), nn.Linear(16, 8))

    def forward(self, x: Tensor) -> Tensor:
        with torch.autocast("cpu", dtype=torch.bfloat16):
            return self.net(self.net(x)).float()


class VectorisedEnsemble(nn.Module):
    """Members stacked and run at once by `vmap`; they themselves are never called."""

    def __init__(self):
        super().__init__()
        self.members = nn.ModuleList(nn.Linear(8, 8) for _ in range(3))

    def forward(self, x: Tensor) -> Tensor:
        names = [name for name, _ in self.members[0].named_parameters()]
        stacked = {
            name: torch.stack([member.get_parameter(name) for member in self.members])
            for name in names
        }

        def one(parameters: dict[str, Tensor]) -> Tensor:
            return functional_call(self.members[0], parameters, (x,))

        return vmap(one)(stacked).tanh().mean(dim=0)


class StackedState(nn.Module):
    """The parameters of an ensemble live stacked; the skeleton has none of its own."""

    def __init__(self):
        super().__init__()
        parameters, _ = stack_module_state([nn.Linear(8, 8) for _ in range(3)])
        self.weight = nn.Parameter(parameters["weight"].detach())
        self.bias = nn.Parameter(parameters["bias"].detach())

    def forward(self, x: Tensor) -> Tensor:
        return vmap(functional.linear, in_dims=(None, 0, 0))(x, self.weight, self.bias).mean(dim=0)


class InnerStep(nn.Module):
    """MAML: predicts with weights after one gradient step, and learns through that step."""

    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(8, 8), nn.Tanh(), nn.Linear(8, 8))

    def forward(self, x: Tensor) -> Tensor:
        parameters = dict(self.net.named_parameters())

        def inner_loss(parameters: dict[str, Tensor]) -> Tensor:
            return functional_call(self.net, parameters, (x,)).square().mean()

        slopes = grad(inner_loss)(parameters)
        moved = {name: value - 0.1 * slopes[name] for name, value in parameters.items()}
        return functional_call(self.net, moved, (x,))


class OwnHooks(nn.Module):
    """Scales gradients by a tensor hook, keeps one, and looks at others by module hooks."""

    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Linear(8, 8), nn.Linear(8, 8)
        self.first.weight.register_hook(self.halve)
        self.second.register_full_backward_hook(self.scale_input)
        self.second.register_forward_hook(self.shift_output)

    @staticmethod
    def halve(gradient: Tensor) -> Tensor:
        return gradient * 0.5

    @staticmethod
    def scale_input(module, grad_input, grad_output):
        return tuple(g * 0.25 for g in grad_input)

    @staticmethod
    def shift_output(module, args, output):
        return output + 1

    def forward(self, x: Tensor) -> Tensor:
        hidden = self.first(x).tanh()
        hidden.retain_grad()
        hidden.register_hook(self.halve)
        return self.second(hidden)


class MinimumMaximum(torch.autograd.Function):
    """Several outputs, one of them not differentiable, one input without a gradient."""

    @staticmethod
    def forward(ctx, x: Tensor, scale: float) -> tuple[Tensor, Tensor, Tensor]:
        low, high = x.amin(dim=1), x.amax(dim=1)
        position = x.argmax(dim=1)
        ctx.mark_non_differentiable(position)
        ctx.save_for_backward(x, low, high)
        ctx.scale = scale
        return low * scale, high * scale, position

    @staticmethod
    def backward(ctx, grad_low: Tensor, grad_high: Tensor, _) -> tuple[Tensor, None]:
        x, low, high = ctx.saved_tensors
        is_low, is_high = x == low[:, None], x == high[:, None]
        return ctx.scale * (is_low * grad_low[:, None] + is_high * grad_high[:, None]), None


class Extremes(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(8, 8)

    def forward(self, x: Tensor) -> Tensor:
        low, high, position = MinimumMaximum.apply(self.layer(x), 2.0)
        return torch.stack([low, high + 0 * position], dim=1)


class PackedSavedTensors(nn.Module):
    """Packs what autograd saves, as offloading to another device does."""

    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(8, 8), nn.Tanh(), nn.Linear(8, 8))

    def forward(self, x: Tensor) -> Tensor:
        with torch.autograd.graph.saved_tensors_hooks(Tensor.numpy, torch.from_numpy):
            return self.net(x.clone()).square()


class MovingAverageTeacher(nn.Module):
    """A teacher under no_grad, kept as a moving average, beside the student that learns."""

    def __init__(self):
        super().__init__()
        self.student, self.teacher = nn.Linear(8, 8), nn.Linear(8, 8)
        self.register_buffer("calls", torch.zeros((), dtype=torch.long))

    def forward(self, x: Tensor) -> Tensor:
        with torch.no_grad():
            self.teacher.weight.lerp_(self.student.weight, 0.01)
            self.calls += 1
            goal = self.teacher(x)
        return self.student(x) - goal


TRANSFORMS = (
    *(
        ArchitectureCase(name=build.__name__, build=build)
        for build in (
            gpt2_bfloat16, gpt2_float64, llama_checkpointed, llama_eager_attention,
            vit_frozen_backbone,
        )
    ),
    *(
        ArchitectureCase(name=name, build=build, loss=functional.mse_loss)
        for name, build in (
            ("autocast", lambda: regression(Autocast())),
            ("vectorised_ensemble", lambda: regression(VectorisedEnsemble())),
            ("stacked_state", lambda: regression(StackedState())),
            ("inner_step", lambda: regression(InnerStep())),
            ("own_hooks", lambda: regression(OwnHooks())),
            ("extremes", lambda: regression(Extremes(), out=2)),
            ("saved_tensor_hooks", lambda: regression(PackedSavedTensors())),
            ("moving_average_teacher", lambda: regression(MovingAverageTeacher())),
        )
    ),
)  # fmt: skip
