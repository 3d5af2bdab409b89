import argparse

import torch
import torch.nn as nn
import torch.nn.functional as F


class Crossing(nn.Module):
    def forward(self, vectors):
        total = vectors.sum(1)
        return 0.5 * (total * total - (vectors * vectors).sum(1)).sum(-1)


class ClickModel(nn.Module):
    def __init__(self, fields, width=8, use_wide=True, use_pairs=True, use_deep=True):
        super().__init__()
        total = sum(fields)
        offsets = torch.tensor([0, *fields[:-1]]).cumsum(0)
        self.register_buffer("offsets", offsets)
        self.use = {"wide": use_wide, "pairs": use_pairs, "deep": use_deep}
        self.linear = nn.Embedding(total, 1)
        self.vectors = nn.Embedding(total, width)
        self.pairs = Crossing()
        self.deep = nn.Sequential(nn.Linear(len(fields) * width, 32), nn.ReLU(), nn.Linear(32, 1))
        self.bias = nn.Parameter(torch.zeros(()))
        nn.init.normal_(self.vectors.weight, std=0.05)

    def forward(self, codes):
        codes = codes + self.offsets
        vectors = self.vectors(codes)
        logit = self.bias.expand(len(codes))
        if self.use["wide"]:
            logit = logit + self.linear(codes).sum((1, 2))
        if self.use["pairs"]:
            logit = self.bias + self.pairs(vectors)
        if self.use["deep"]:
            logit = logit + self.deep(vectors.flatten(1)).squeeze(-1)
        return logit


def clicks(rows, fields, generator):
    codes = torch.stack([torch.randint(0, size, (rows,), generator=generator) for size in fields], dim=1)
    taste = torch.sin(codes[:, 0].float()) + torch.cos(codes[:, 1] * codes[:, 2] / 9.0)
    return codes, (torch.rand(rows, generator=generator) < torch.sigmoid(2 * taste)).float()


def main(argv=None):
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument("--batch-size", type=int, default=128)
    parser.add_argument("--no-wide", dest="wide", action="store_false")
    options = parser.parse_args(argv)
    torch.manual_seed(17)
    fields = [50, 30, 12, 7]
    codes, label = clicks(3200, fields, torch.Generator().manual_seed(17))
    model = ClickModel(fields, use_wide=options.wide)
    optimizer = torch.optim.Adam(model.parameters(), lr=5e-3)
    for epoch in range(options.epochs):
        running = 0.0
        for rows in torch.randperm(len(label)).split(options.batch_size):
            optimizer.zero_grad()
            loss = F.binary_cross_entropy_with_logits(model(codes[rows]), label[rows])
            loss.backward()
            optimizer.step()
            running += loss.item() * len(rows)
        print(f"epoch {epoch}: {running / len(label):.4f}")


if __name__ == "__main__":
    main()
