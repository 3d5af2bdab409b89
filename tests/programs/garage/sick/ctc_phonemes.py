from dataclasses import dataclass

import torch
from torch import nn
from torch.nn.utils.rnn import pad_sequence
from torch.utils.data import DataLoader, Dataset


@dataclass
class Config:
    phonemes: int = 8
    features: int = 12
    hidden: int = 32
    batch: int = 8
    epochs: int = 3
    lr: float = 2e-3


class Utterances(Dataset):
    def __init__(self, count, config, seed=0):
        g = torch.Generator().manual_seed(seed)
        self.templates = torch.randn(config.phonemes + 1, config.features, generator=g)
        self.items = []
        for _ in range(count):
            length = int(torch.randint(3, 6, (1,), generator=g))
            label = torch.randint(1, config.phonemes + 1, (length,), generator=g)
            frames = self.templates[label.repeat_interleave(5)]
            self.items.append((frames + 0.3 * torch.randn(frames.shape, generator=g), label))

    def __len__(self):
        return len(self.items)

    def __getitem__(self, index):
        return self.items[index]


def collate(items):
    frames, labels = zip(*items)
    return (
        pad_sequence(frames, batch_first=True),
        torch.tensor([len(f) for f in frames]),
        torch.cat(labels),
        torch.tensor([len(x) for x in labels]),
    )


class AcousticModel(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.conv = nn.Conv1d(config.features, config.hidden, 3, padding=1)
        self.norm = nn.LayerNorm(config.hidden)
        self.rnn = nn.LSTM(config.hidden, config.hidden, batch_first=True, bidirectional=True)
        self.classifier = nn.Linear(2 * config.hidden, config.phonemes + 1)

    def forward(self, frames):
        x = self.conv(frames.transpose(1, 2)).transpose(1, 2)
        x, _ = self.rnn(torch.relu(self.norm(x)))
        return self.classifier(x)


class Recogniser:
    def __init__(self, config):
        self.config = config
        self.model = AcousticModel(config)
        self.criterion = nn.CTCLoss(blank=0, zero_infinity=True)
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=config.lr)

    def loss(self, frames, frame_lengths, labels, label_lengths):
        logits = self.model(frames)
        scores = logits.softmax(dim=-1).transpose(0, 1)
        return self.criterion(scores, labels, frame_lengths, label_lengths)

    def fit(self, loader):
        for epoch in range(self.config.epochs):
            total = 0.0
            for batch in loader:
                loss = self.loss(*batch)
                self.optimizer.zero_grad()
                loss.backward()
                nn.utils.clip_grad_norm_(self.model.parameters(), 5.0)
                self.optimizer.step()
                total += loss.item()
            print(f"epoch {epoch + 1}: {total / len(loader):.3f}")


if __name__ == "__main__":
    torch.manual_seed(1)
    config = Config()
    data = Utterances(64, config)
    loader = DataLoader(data, config.batch, shuffle=True, collate_fn=collate)
    Recogniser(config).fit(loader)
