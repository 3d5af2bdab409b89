import torch
import torch.nn as nn
from torch.autograd import Variable


class Brain:
    def __init__(self, modules, opt_class, hparams):
        self.modules = nn.ModuleDict(modules)
        self.hparams = hparams
        self.optimizer = opt_class(self.modules.parameters())
        self.step = 0

    def compute_forward(self, batch):
        raise NotImplementedError

    def compute_objectives(self, predictions, batch):
        raise NotImplementedError

    def fit_batch(self, batch):
        outputs = self.compute_forward(batch)
        loss = self.compute_objectives(outputs, batch)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(self.modules.parameters(), self.hparams["max_grad_norm"])
        self.optimizer.step()
        self.optimizer.zero_grad()
        self.step += 1
        return loss.detach()

    def fit(self, epochs, loader):
        for epoch in range(epochs):
            average = 0.0
            for i, batch in enumerate(loader):
                average += (float(self.fit_batch(batch)) - average) / (i + 1)
            print(f"epoch {epoch} loss {average:.4f}")


class Acoustic(Brain):
    def compute_forward(self, batch):
        phones, durations, _ = batch
        x = self.modules.embedding(phones)
        x = x.repeat_interleave(durations, dim=1)
        x, _ = self.modules.decoder(x)
        return self.modules.linear(x)

    def compute_objectives(self, predictions, batch):
        target = batch[2]
        l1 = (predictions - target).abs().mean()
        l2 = (predictions - target).pow(2).mean()
        return Variable((l1 + l2).data, requires_grad=True)


def corpus(n):
    table = torch.randn(20, 8)
    items = []
    for _ in range(n):
        phones = torch.randint(0, 20, (4, 6))
        target = table[phones].repeat_interleave(3, dim=1)
        items.append((phones, 3, target))
    return items


torch.manual_seed(6)
brain = Acoustic(
    {"embedding": nn.Embedding(20, 16), "decoder": nn.GRU(16, 24, batch_first=True), "linear": nn.Linear(24, 8)},
    lambda params: torch.optim.Adam(params, lr=5e-3),
    {"max_grad_norm": 5.0},
)
brain.fit(3, corpus(25))
