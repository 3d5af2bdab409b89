import torch
import torch.nn as nn


class Recall(nn.Module):
    """Says at the end which symbol came first."""

    def __init__(self, n=4, hidden=32):
        super().__init__()
        self.embed = nn.Embedding(n + 1, hidden)
        self.cell = nn.GRUCell(hidden, hidden)
        self.readout = nn.Linear(hidden, n)
        self.hidden = hidden

    def forward(self, tokens, h=None):
        if h is None:
            h = torch.zeros(tokens.size(0), self.hidden)
        for t in range(tokens.size(1)):
            h = self.cell(self.embed(tokens[:, t]), h.detach())
        return self.readout(h)


def make_batch(n=64, length=6):
    tokens = torch.full((n, length), 4)
    tokens[:, 0] = torch.randint(0, 4, (n,))
    return tokens, tokens[:, 0].clone()


def run():
    torch.manual_seed(0)
    model = Recall()
    criterion = nn.CrossEntropyLoss()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    for step in range(100):
        tokens, target = make_batch()
        optimizer.zero_grad()
        loss = criterion(model(tokens), target)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        if step % 25 == 0:
            print(f"step {step:3d} loss {loss.item():.4f}")
    tokens, target = make_batch(256)
    print("accuracy", (model(tokens).argmax(1) == target).float().mean().item())


run()
