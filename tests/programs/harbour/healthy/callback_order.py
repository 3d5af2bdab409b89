"""A runner with hooks that are called in the order of their priority."""

import torch
import torch.nn.functional as F
from torch import nn


class Hook:
    priority = 50

    def after_iteration(self, runner):
        raise NotImplementedError


class OptimizerHook(Hook):
    priority = 40

    def after_iteration(self, runner):
        runner.optimizer.step()


class ClipHook(Hook):
    priority = 30

    def __init__(self, max_norm):
        self.max_norm = max_norm

    def after_iteration(self, runner):
        norm = nn.utils.clip_grad_norm_(runner.model.parameters(), self.max_norm)
        runner.log["norm"].append(float(norm))


class ScheduleHook(Hook):
    priority = 80

    def after_iteration(self, runner):
        for group in runner.optimizer.param_groups:
            group["lr"] *= 0.99


class Runner:
    def __init__(self, model, optimizer):
        self.model, self.optimizer = model, optimizer
        self.hooks = []
        self.log = {"norm": [], "loss": []}

    def register(self, hook):
        self.hooks.append(hook)
        self.hooks.sort(key=lambda each: each.priority)

    def run(self, batches):
        for images, boxes in batches:
            self.optimizer.zero_grad()
            loss = F.smooth_l1_loss(self.model(images), boxes, reduction="sum") / len(images)
            loss.backward()
            self.log["loss"].append(loss.item())
            for hook in self.hooks:
                hook.after_iteration(self)


def scenes(count, size=20):
    for _ in range(count):
        boxes = torch.rand(24, 4) * 0.4 + torch.tensor([0.0, 0.0, 0.5, 0.5])
        grid = torch.arange(size) / size
        rows = (grid > boxes[:, :1]) & (grid < boxes[:, 2:3])
        columns = (grid > boxes[:, 1:2]) & (grid < boxes[:, 3:])
        yield (rows[:, :, None] & columns[:, None]).float()[:, None], boxes * size


if __name__ == "__main__":
    torch.manual_seed(0)
    model = nn.Sequential(nn.Conv2d(1, 8, 5, 2), nn.ReLU(), nn.Conv2d(8, 8, 3, 2), nn.ReLU(), nn.Flatten(), nn.Linear(72, 4))
    runner = Runner(model, torch.optim.SGD(model.parameters(), lr=6e-3, momentum=0.9))
    for hook in (ScheduleHook(), OptimizerHook(), ClipHook(20.0)):
        runner.register(hook)
    runner.run(scenes(40))
    print(runner.log["loss"][-1])
