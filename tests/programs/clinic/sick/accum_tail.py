import torch
import torch.nn.functional as F
from torch import nn
from torch.nn.utils.rnn import pad_sequence
from torch.utils.data import DataLoader, Dataset


class Reviews(Dataset):
    def __init__(self, n=216, words=60):
        generator = torch.Generator().manual_seed(6)
        self.items = []
        for _ in range(n):
            label = int(torch.randint(0, 3, (1,), generator=generator))
            length = int(torch.randint(5, 15, (1,), generator=generator))
            topic = torch.randint(1 + 20 * label, 15 + 20 * label, (length,), generator=generator)
            other = torch.randint(1, words, (length,), generator=generator)
            keep = torch.rand(length, generator=generator) < 0.6
            self.items.append((torch.where(keep, topic, other), label))

    def __len__(self):
        return len(self.items)

    def __getitem__(self, i):
        return self.items[i]


def collate(batch):
    words, labels = zip(*batch)
    return pad_sequence(words, batch_first=True), torch.tensor(labels)


class Classifier(nn.Module):
    def __init__(self, words=61, dim=32):
        super().__init__()
        self.embedding = nn.Embedding(words, dim, padding_idx=0)
        self.attention = nn.Linear(dim, 1)
        self.output = nn.Sequential(nn.Linear(dim, dim), nn.ReLU(), nn.Linear(dim, 3))

    def forward(self, words):
        x = self.embedding(words)
        scores = self.attention(x).squeeze(-1).masked_fill(words == 0, float("-inf"))
        return self.output((scores.softmax(dim=1)[..., None] * x).sum(dim=1))


def train_epoch(model, loader, optimizer, window):
    optimizer.zero_grad()
    total = 0.0
    for i, (words, labels) in enumerate(loader):
        loss = F.cross_entropy(model(words), labels) / window
        loss.backward()
        if (i + 1) % window == 0:
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            optimizer.zero_grad()
        total += loss.item()
    return total


def main():
    torch.manual_seed(17)
    loader = DataLoader(Reviews(), batch_size=8, shuffle=True, collate_fn=collate)
    model = Classifier()
    optimizer = torch.optim.Adam(model.parameters(), lr=4e-3)
    for epoch in range(4):
        print(f"epoch {epoch}: {train_epoch(model, loader, optimizer, window=4):.3f}")


if __name__ == "__main__":
    main()
