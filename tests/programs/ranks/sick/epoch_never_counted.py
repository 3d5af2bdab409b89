from datetime import timedelta

import torch
import torch.distributed as dist
from torch import nn
from torch.nn import functional as F
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

torch.set_num_threads(1)
dist.init_process_group("gloo", timeout=timedelta(seconds=15))
rank, world = dist.get_rank(), dist.get_world_size()
class Trainer:
    def __init__(self, model, dataset, epochs):
        self.model = DistributedDataParallel(model)
        self.sampler = DistributedSampler(dataset)
        self.loader = DataLoader(dataset, batch_size=8, sampler=self.sampler)
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.05)
        self.epochs, self.epoch = epochs, 0

    def train_epoch(self):
        self.sampler.set_epoch(self.epoch)
        for x, y in self.loader:
            self.optimizer.zero_grad()
            loss = F.cross_entropy(self.model(x), y)
            loss.backward()
            self.optimizer.step()
        return loss.detach()

    def fit(self):
        for _ in range(self.epochs):
            loss = self.train_epoch()
        return loss


torch.manual_seed(0)
inputs = torch.randn(80, 9)
dataset = TensorDataset(inputs, inputs[:, :4].argmax(1))
loss = Trainer(nn.Sequential(nn.Linear(9, 30), nn.ReLU(), nn.Linear(30, 4)), dataset, epochs=4).fit()
print(f"rank {rank} loss {loss.item():.5f}", flush=True)
dist.destroy_process_group()
