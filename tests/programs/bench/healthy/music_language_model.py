"""Next-token model of short melodies of unequal length."""

import torch
from torch import nn
from torch.nn import functional as F
from torch.nn.utils.rnn import pad_sequence
from torch.utils.data import DataLoader, Dataset

PAD, BOS, EOS, FIRST = 0, 1, 2, 3
VOCAB = FIRST + 24


class Melodies(Dataset):
    def __init__(self, n=120, seed=0):
        g = torch.Generator().manual_seed(seed)
        self.items = []
        for _ in range(n):
            length = int(torch.randint(3, 24, (1,), generator=g))
            start = int(torch.randint(24, (1,), generator=g))
            notes = FIRST + (start + 2 * torch.arange(length)) % 24
            self.items.append(torch.cat([torch.tensor([BOS]), notes, torch.tensor([EOS])]))

    def __len__(self):
        return len(self.items)

    def __getitem__(self, i):
        return self.items[i]


def collate(batch):
    return pad_sequence(batch, batch_first=True, padding_value=PAD)


class MelodyLM(nn.Module):
    def __init__(self, dim=32):
        super().__init__()
        self.embed = nn.Embedding(VOCAB, dim, padding_idx=PAD)
        self.lstm = nn.LSTM(dim, dim, batch_first=True)
        self.head = nn.Linear(dim, VOCAB)

    def forward(self, ids):
        return self.head(self.lstm(self.embed(ids))[0])


def train():
    torch.manual_seed(0)
    loader = DataLoader(Melodies(), batch_size=12, shuffle=True, collate_fn=collate)
    model = MelodyLM()
    loss_fn = nn.CrossEntropyLoss(ignore_index=PAD)
    optimizer = torch.optim.AdamW(model.parameters(), lr=5e-3)
    for epoch in range(4):
        total = 0.0
        for batch in loader:
            logits = model(batch[:, :-1])
            loss = loss_fn(logits.transpose(1, 2), batch[:, 1:])
            optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            total += loss.item()
        print(f"epoch {epoch}: {total / len(loader):.4f}")


if __name__ == "__main__":
    train()
