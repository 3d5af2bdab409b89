import torch
import torch.nn.functional as F
from torch import nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence, pad_sequence
from torch.utils.data import DataLoader, Dataset

IGNORED = -100


class Sentences(Dataset):
    def __init__(self, n=200, words=40):
        generator = torch.Generator().manual_seed(9)
        self.items = []
        for _ in range(n):
            length = int(torch.randint(6, 20, (1,), generator=generator))
            words_of = torch.randint(1, words, (length,), generator=generator)
            previous = torch.cat([torch.zeros(1, dtype=torch.long), words_of[:-1]])
            self.items.append((words_of, (words_of + (previous > 20)) % 4))

    def __len__(self):
        return len(self.items)

    def __getitem__(self, i):
        return self.items[i]


def collate(batch):
    batch = sorted(batch, key=lambda one: -len(one[0]))
    words, tags = zip(*batch)
    return (
        pad_sequence(words, batch_first=True),
        pad_sequence(tags, batch_first=True, padding_value=IGNORED),
        torch.tensor([len(one) for one in words]),
    )


class Tagger(nn.Module):
    def __init__(self, words=40, dim=32, tags=4):
        super().__init__()
        self.embedding = nn.Embedding(words, dim, padding_idx=0)
        self.rnn = nn.GRU(dim, dim, batch_first=True, bidirectional=True)
        self.dropout = nn.Dropout(0.1)
        self.tags = nn.Linear(2 * dim, tags)

    def forward(self, words, lengths):
        packed = pack_padded_sequence(self.embedding(words), lengths, batch_first=True)
        states, _ = pad_packed_sequence(self.rnn(packed)[0], batch_first=True)
        return self.tags(self.dropout(states))


def main():
    torch.manual_seed(20)
    loader = DataLoader(Sentences(), batch_size=20, shuffle=True, collate_fn=collate)
    model = Tagger()
    parameters = model.parameters()
    optimizer = torch.optim.Adam(parameters, lr=5e-3)
    scheduler = torch.optim.lr_scheduler.ExponentialLR(optimizer, gamma=0.9)
    for epoch in range(6):
        for words, tags, lengths in loader:
            scores = model(words, lengths)
            loss = F.cross_entropy(scores.flatten(0, 1), tags.flatten(), ignore_index=IGNORED)
            optimizer.zero_grad()
            loss.backward()
            torch.nn.utils.clip_grad_norm_(parameters, 0.5)
            optimizer.step()
        scheduler.step()
        print(f"epoch {epoch}: {loss.item():.4f}")


if __name__ == "__main__":
    main()
