from dataclasses import dataclass

import torch
import torch.nn as nn
import torch.nn.functional as F


@dataclass
class Mixed:
    hidden: torch.Tensor
    balance: torch.Tensor


class Experts(nn.Module):
    def __init__(self, width, count):
        super().__init__()
        self.router = nn.Linear(width, count, bias=False)
        self.experts = nn.ModuleList(
            [nn.Sequential(nn.Linear(width, width), nn.SiLU(), nn.Linear(width, width)) for _ in range(count)]
        )

    def forward(self, hidden):
        flat = hidden.flatten(0, 1)
        probability = self.router(flat).softmax(-1)
        gate, choice = probability.max(-1)
        output = torch.zeros_like(flat)
        for index, expert in enumerate(self.experts):
            rows = (choice == index).nonzero().squeeze(1)
            if len(rows):
                output = output.index_add(0, rows, gate[rows, None] * expert(flat[rows]))
        load = F.one_hot(choice, probability.size(1)).float().mean(0)
        return Mixed(hidden + output.view_as(hidden), (load * probability.mean(0)).sum() * len(self.experts))


class ExpertLM(nn.Module):
    def __init__(self, vocabulary=60, width=32):
        super().__init__()
        self.embedding = nn.Embedding(vocabulary, width)
        self.rnn = nn.GRU(width, width, batch_first=True)
        self.experts = Experts(width, 4)
        self.head = nn.Linear(width, vocabulary)

    def forward(self, tokens):
        mixed = self.experts(self.rnn(self.embedding(tokens))[0])
        return self.head(mixed.hidden), mixed.balance


def main():
    torch.manual_seed(2)
    generator = torch.Generator().manual_seed(2)
    model = ExpertLM()
    optimizer = torch.optim.AdamW(model.parameters(), lr=4e-3)
    for step in range(50):
        start = torch.randint(0, 60, (8, 1), generator=generator)
        tokens = (start + 7 * torch.arange(13)) % 60
        logits, balance = model(tokens[:, :-1])
        loss = F.cross_entropy(logits.flatten(0, 1), tokens[:, 1:].flatten()) + 0.02 * balance
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        if step % 10 == 0:
            print(step, loss.item(), balance.item())


main()
