from datetime import timedelta

import torch
import torch.distributed as dist
from torch import nn
from torch.nn import functional as F

torch.set_num_threads(1)
dist.init_process_group("gloo", timeout=timedelta(seconds=15))
rank, world = dist.get_rank(), dist.get_world_size()


class ConvNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(1, 8, 3, padding=1)
        self.fc = nn.Linear(8 * 4 * 4, 3)

    def forward(self, x):
        return self.fc(F.max_pool2d(F.relu(self.conv(x)), 2).flatten(1))


def average_gradients(model):
    size = float(dist.get_world_size())
    for param in model.parameters():
        dist.all_reduce(param.grad)
        param.grad.data /= size


torch.manual_seed(1234)
model = ConvNet()
filters = torch.randn(64, 3, generator=torch.Generator().manual_seed(5))
draw = torch.Generator().manual_seed(40 + rank)
optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.5)
for step in range(24):
    image = torch.randn(16, 1, 8, 8, generator=draw)
    label = (image.flatten(1) @ filters).argmax(1)
    optimizer.zero_grad()
    loss = F.cross_entropy(model(image), label)
    loss.backward()
    average_gradients(model)
    optimizer.step()
print(f"rank {rank} loss {loss.item():.5f}", flush=True)
dist.destroy_process_group()
