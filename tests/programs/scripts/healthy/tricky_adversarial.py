import torch
import torch.nn as nn
import torch.nn.functional as F


class Reverse(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, strength):
        ctx.strength = strength
        return x.view_as(x)

    @staticmethod
    def backward(ctx, grad):
        return -ctx.strength * grad, None


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.rnn = nn.LSTM(6, 24, batch_first=True)
        self.label, self.domain = nn.Linear(24, 3), nn.Linear(24, 2)

    def forward(self, x, state, strength):
        h, state = self.rnn(x, state)
        return self.label(h), self.domain(Reverse.apply(h, strength)), state


torch.manual_seed(9)
model = Model()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
rule = torch.randn(6, 3)
state = None
for step in range(120):
    x = torch.randn(16, 10, 6)
    side = torch.arange(16) % 2
    x = x + side[:, None, None] * 0.5
    target = (x @ rule).argmax(-1)
    if state is not None:
        state = tuple(s.detach() for s in state)
    probe = x.clone().requires_grad_(True)
    scores, _, _ = model(probe, state, 0.0)
    direction = torch.autograd.grad(F.cross_entropy(scores.flatten(0, 1), target.flatten()), probe)[0]
    x = x + 0.02 * direction.sign()
    strength = 2 / (1 + torch.exp(torch.tensor(-10.0 * step / 120)).item()) - 1
    scores, domains, state = model(x, state, strength)
    loss = F.cross_entropy(scores.flatten(0, 1), target.flatten())
    loss = loss + 0.1 * F.cross_entropy(domains.mean(1), side)
    optimizer.zero_grad()
    loss.backward()
    nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    if step % 30 == 0:
        print(step, loss.item())
