"""A trainer with callbacks: accumulation, clipping and logging are plug-ins."""

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import nn


class Callback:
    def before_window(self, trainer): ...

    def before_backward(self, trainer): ...

    def after_window(self, trainer): ...


class ClearGradients(Callback):
    def before_backward(self, trainer):
        trainer.optimizer.zero_grad(set_to_none=False)


class ClipGradients(Callback):
    def __init__(self, limit):
        self.limit = limit

    def after_window(self, trainer):
        nn.utils.clip_grad_norm_(trainer.model.parameters(), self.limit)


class LossLog(Callback):
    def __init__(self):
        self.losses = []

    def after_window(self, trainer):
        self.losses.append(trainer.loss.item())


@dataclass
class Trainer:
    model: nn.Module
    optimizer: torch.optim.Optimizer
    callbacks: list
    micro_batches: int = 4
    loss: torch.Tensor = None

    def emit(self, event):
        for callback in self.callbacks:
            getattr(callback, event)(self)

    def window(self, images, labels):
        self.emit("before_window")
        for x, y in zip(images.chunk(self.micro_batches), labels.chunk(self.micro_batches)):
            self.loss = F.cross_entropy(self.model(x), y)
            self.emit("before_backward")
            (self.loss / self.micro_batches).backward()
        self.emit("after_window")
        self.optimizer.step()


def main():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Conv2d(1, 8, 3, 2, 1), nn.ReLU(), nn.Conv2d(8, 16, 3, 2, 1), nn.ReLU(), nn.Flatten(), nn.Linear(16 * 16, 4))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    log = LossLog()
    trainer = Trainer(model, optimizer, [ClearGradients(), ClipGradients(5.0), log])
    templates = torch.randn(4, 1, 16, 16)
    for _ in range(30):
        labels = torch.randint(0, 4, (32,))
        trainer.window(templates[labels] + torch.randn(32, 1, 16, 16), labels)
    print(f"{log.losses[0]:.3f} -> {log.losses[-1]:.3f}")


if __name__ == "__main__":
    main()
