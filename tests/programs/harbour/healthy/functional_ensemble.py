"""An ensemble of regressors in one vmap, with functional gradients and no optimizer object."""

import torch
import torch.nn.functional as F
from torch import nn
from torch.func import functional_call, grad_and_value, stack_module_state, vmap


def member():
    return nn.Sequential(nn.Linear(4, 24), nn.Tanh(), nn.Linear(24, 1))


def main(members=4, steps=40, lr=0.05, momentum=0.9):
    torch.manual_seed(0)
    models = [member() for _ in range(members)]
    template = models[0]
    parameters, buffers = stack_module_state(models)
    parameters = {name: value.detach() for name, value in parameters.items()}
    velocity = {name: torch.zeros_like(value) for name, value in parameters.items()}

    def loss_of(parameters, buffers, x, y):
        return F.mse_loss(functional_call(template, (parameters, buffers), (x,)), y)

    gradients_of = vmap(grad_and_value(loss_of), in_dims=(0, 0, 0, 0))
    weights = torch.randn(4, 1)
    for _ in range(steps):
        x = torch.randn(members, 32, 4)
        y = torch.sin(x @ weights)
        gradients, losses = gradients_of(parameters, buffers, x, y)
        for name, gradient in gradients.items():
            velocity[name] = momentum * velocity[name] + gradient
            parameters[name] = parameters[name] - lr * velocity[name]
    print(losses.tolist())


main()
