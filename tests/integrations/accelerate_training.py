"""Trainings with Accelerate; what it imports takes long."""

import torch
from accelerate import Accelerator
from accelerate.tracking import GeneralTracker
from torch import nn

from gradscope.integrations.accelerate import GradscopeTracker


class Kept(GeneralTracker):
    name, requires_logging_directory, tracker = "kept", False, None

    def __init__(self):
        super().__init__()
        self.logs, self.is_finished = [], False

    def log(self, values, step=None, **kwargs):
        assert not self.is_finished
        self.logs.append((step, dict(values)))

    def finish(self):
        self.is_finished = True


def train(*trackers, zeroes=True):
    torch.manual_seed(0)
    accelerator = Accelerator(
        gradient_accumulation_steps=2, cpu=True, log_with=list(trackers) or None
    )
    accelerator.init_trackers("project")
    net = nn.Sequential(nn.Linear(4, 3), nn.Linear(3, 1))
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    data = torch.utils.data.DataLoader(torch.randn(16, 4), 4)
    net, optimizer, data = accelerator.prepare(net, optimizer, data)
    norms = []
    for epoch in range(2):
        for x in data:
            with accelerator.accumulate(net):
                accelerator.backward(net(x).square().mean())
                if accelerator.sync_gradients:
                    norms.append(float(accelerator.clip_grad_norm_(net.parameters(), 0.01)))
                optimizer.step()
                if zeroes:
                    optimizer.zero_grad()
            if accelerator.sync_gradients:
                accelerator.log({"epoch": epoch}, step=len(norms))
    accelerator.end_training()
    return net, norms


def train_part(folder, path, steps, *, resumes):
    """Train from the start or from the checkpoint, and save a checkpoint."""
    torch.manual_seed(0)
    tracker = GradscopeTracker(save=path, budget=None)
    accelerator = Accelerator(cpu=True, log_with=[tracker])
    net = nn.Linear(4, 1)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    net, optimizer = accelerator.prepare(net, optimizer)
    accelerator.init_trackers("project")
    if resumes:
        accelerator.load_state(folder)
    for _ in range(steps):
        accelerator.backward(net(torch.randn(2, 4)).square().mean())
        optimizer.step()
        optimizer.zero_grad()
    accelerator.save_state(folder)
    accelerator.end_training()
