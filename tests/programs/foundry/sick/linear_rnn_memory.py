"""Linear recurrence with a gated readout that recalls a token from the start of a long sequence."""
import torch
import torch.nn.functional as F
from torch import nn

LENGTH, VOCAB = 70, 8


def initialise(matrix, nonlinearity):
    with torch.no_grad():
        nn.init.orthogonal_(matrix, gain=nn.init.calculate_gain("relu"))
    return matrix


class LinearRecurrence(nn.Module):
    def __init__(self, n_in, width):
        super().__init__()
        self.u = nn.Linear(n_in, width)
        self.w = nn.Parameter(initialise(torch.empty(width, width), "linear"))

    def forward(self, x):
        state = x.new_zeros(x.size(0), self.w.size(0))
        states = []
        for t in range(x.size(1)):
            state = state @ self.w.t() + self.u(x[:, t])
            states.append(state)
        return torch.stack(states, 1)


class Recaller(nn.Module):
    def __init__(self, width=32):
        super().__init__()
        self.embed = nn.Embedding(VOCAB, 16)
        self.mix = LinearRecurrence(16, width)
        self.gate = nn.Linear(16, width)
        self.out = nn.Linear(width, VOCAB)

    def forward(self, ids):
        x = self.embed(ids)
        h = self.mix(x)[:, -1]
        return self.out(h * torch.sigmoid(self.gate(x[:, -1])) * 0.1)


def batch(n):
    ids = torch.randint(0, VOCAB, (n, LENGTH))
    return ids, ids[:, 0]


def main():
    torch.manual_seed(115)
    model = Recaller()
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-2)
    for step in range(12):
        ids, answer = batch(24)
        loss = F.cross_entropy(model(ids), answer)
        optimizer.zero_grad()
        loss.backward()
        norm = nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        if step % 3 == 0:
            print(f"step {step} loss {loss.item():.4g} norm {norm.item():.4g}")


if __name__ == "__main__":
    main()
