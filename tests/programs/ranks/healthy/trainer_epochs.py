import os
from datetime import timedelta

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, Dataset, DistributedSampler


class Waves(Dataset):
    def __len__(self):
        return 96

    def __getitem__(self, index):
        times = torch.linspace(0, 6, 32)
        return torch.sin(times * (1 + index / 96)), torch.tensor([index / 96])


class Trainer:
    def __init__(self, model, epochs):
        self.model = DistributedDataParallel(model)
        self.optimizer = torch.optim.RMSprop(model.parameters(), lr=1e-3)
        self.epochs, self.last = epochs, None
        self.loader = self.build_loader(Waves())

    def build_loader(self, data):
        self.sampler = DistributedSampler(data, shuffle=True, drop_last=True)
        return DataLoader(data, batch_size=8, sampler=self.sampler)

    def fit(self):
        for epoch in range(self.epochs):
            self.sampler.set_epoch(epoch)
            self.run_epoch(epoch)

    def run_epoch(self, epoch):
        self.model.train()
        for waves, pitch in self.loader:
            self.optimizer.zero_grad()
            self.last = nn.functional.l1_loss(self.model(waves[:, None]), pitch)
            self.last.backward()
            self.optimizer.step()


def main():
    torch.set_num_threads(1)
    dist.init_process_group("gloo", timeout=timedelta(seconds=60))
    torch.manual_seed(23)
    network = nn.Sequential(
        nn.Conv1d(1, 8, 5, stride=2),
        nn.ReLU(),
        nn.Conv1d(8, 8, 3),
        nn.ReLU(),
        nn.Flatten(),
        nn.Linear(96, 1),
    )
    trainer = Trainer(network, epochs=4)
    trainer.fit()
    print(f"rank {os.environ['RANK']} loss {trainer.last.item():.6f}", flush=True)
    dist.destroy_process_group()


main()
