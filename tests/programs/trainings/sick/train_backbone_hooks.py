import torch
from torch import nn
from torch.nn import functional as F


class TwoPart(nn.Module):
    def __init__(self):
        super().__init__()
        self.trunk = nn.Sequential(nn.Linear(6, 40), nn.Tanh(), nn.Linear(40, 40), nn.Tanh())
        self.head = nn.Linear(40, 2)

    def forward(self, x):
        return self.head(self.trunk(x))


class Callback:
    def on_fit_start(self, model): ...
    def on_epoch_start(self, model): ...


class GradScale(Callback):
    """Lets the trunk learn more slowly than the head."""

    def __init__(self, factor=0.5):
        self.factor = factor
        self.handles = []

    def attach(self, model):
        for p in model.trunk.parameters():
            self.handles.append(p.register_hook(lambda grad: grad * self.factor))

    def on_epoch_start(self, model):
        self.attach(model)


class Trainer:
    def __init__(self, model, callbacks, epochs=12, steps=12):
        self.model, self.callbacks = model, callbacks
        self.epochs, self.steps = epochs, steps
        self.opt = torch.optim.SGD(model.parameters(), lr=0.2, momentum=0.9)

    def call(self, name):
        for cb in self.callbacks:
            getattr(cb, name)(self.model)

    def fit(self, source):
        self.call("on_fit_start")
        for epoch in range(self.epochs):
            self.call("on_epoch_start")
            total = 0.0
            for _ in range(self.steps):
                x, y = source()
                loss = F.cross_entropy(self.model(x), y)
                self.opt.zero_grad()
                loss.backward()
                self.opt.step()
                total += loss.item()
            if epoch % 2 == 1:
                print(f"epoch {epoch} loss {total / self.steps:.4f}")


def main():
    torch.manual_seed(241)
    g = torch.Generator().manual_seed(242)

    def source():
        x = torch.randn(96, 6, generator=g)
        y = (x[:, :3].pow(2).sum(1) > 2.4).long()
        return x, y

    Trainer(TwoPart(), [GradScale(0.5)]).fit(source)


main()
