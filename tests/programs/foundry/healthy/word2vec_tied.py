"""Gated convolutional language model with tied embeddings."""
import torch
import torch.nn.functional as F
from torch import nn

VOCAB, DIM = 40, 32


class GatedConv(nn.Module):
    def __init__(self, dim, kernel=4):
        super().__init__()
        self.kernel = kernel
        self.conv = nn.Conv1d(dim, 2 * dim, kernel)

    def forward(self, x):
        y = self.conv(F.pad(x, (self.kernel - 1, 0)))
        return x + F.glu(y, dim=1)


class GCNN(nn.Module):
    def __init__(self, depth=3):
        super().__init__()
        self.embedding = nn.Embedding(VOCAB, DIM)
        nn.init.normal_(self.embedding.weight, std=DIM**-0.5)
        self.layers = nn.ModuleList(GatedConv(DIM) for _ in range(depth))
        self.norm = nn.LayerNorm(DIM)
        self.head = nn.Linear(DIM, VOCAB, bias=False)
        self.tie_weights()

    def tie_weights(self):
        self.head.weight = self.embedding.weight

    def forward(self, ids):
        x = self.embedding(ids).transpose(1, 2)
        for layer in self.layers:
            x = layer(x)
        return self.head(self.norm(x.transpose(1, 2)))


def sequences(n, length=24):
    ids = torch.zeros(n, length + 1, dtype=torch.long)
    ids[:, 0] = torch.randint(0, VOCAB, (n,))
    for t in range(length):
        jump = torch.where(torch.rand(n) < 0.9, 7, 3)
        ids[:, t + 1] = (ids[:, t] + jump) % VOCAB
    return ids


def main():
    torch.manual_seed(125)
    model = GCNN()
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
    for step in range(25):
        ids = sequences(24)
        loss = F.cross_entropy(model(ids[:, :-1]).flatten(0, 1), ids[:, 1:].flatten())
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        if step % 6 == 0:
            print(f"step {step}: {loss.item():.4f}")


if __name__ == "__main__":
    main()
