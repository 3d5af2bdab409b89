"""A tone classifier with an exponential moving average of its weights."""

import copy

import torch
from torch import nn


class Tones(nn.Module):
    def __init__(self, classes=5):
        super().__init__()
        self.conv = nn.Conv1d(1, 8, 9, stride=4)
        self.rnn = nn.GRU(8, 16, batch_first=True)
        self.out = nn.Linear(16, classes)

    def forward(self, wave):
        h = torch.relu(self.conv(wave.unsqueeze(1))).transpose(1, 2)
        return self.out(self.rnn(h)[0].mean(1))


def waves(count, classes=5):
    label = torch.randint(0, classes, (count,))
    time = torch.arange(96) / 96
    return torch.sin(2 * torch.pi * (4 + 5 * label[:, None]) * time) + 0.2 * torch.randn(
        count, 96
    ), label


class Trainer:
    def __init__(self, model, decay=0.95):
        self.model, self.decay = model, decay
        self.average = copy.deepcopy(model)
        self.optimizer = torch.optim.AdamW(model.parameters(), lr=4e-3)

    def update(self, wave, label):
        loss = nn.functional.cross_entropy(self.model(wave), label)
        self.optimizer.zero_grad()
        loss.backward()
        norm = nn.utils.clip_grad_norm_(self.model.parameters(), max_norm=1.0)
        self.optimizer.step()
        with torch.no_grad():
            for old, new in zip(self.average.parameters(), self.model.parameters()):
                old.lerp_(new, 1 - self.decay)
        return loss.item(), norm


if __name__ == "__main__":
    torch.set_num_threads(1)
    torch.manual_seed(0)
    trainer = Trainer(Tones())
    for step in range(40):
        loss, norm = trainer.update(*waves(32))
        if step % 10 == 0:
            print(f"step {step} loss {loss:.3f} norm {float(norm):.3f}")
