import torch
from torch import nn

TEXT = ("the quick brown fox jumps over the lazy dog and then the dog sleeps in the sun " * 20).strip()
CHARS = sorted(set(TEXT))
INDEX = {c: i for i, c in enumerate(CHARS)}


class CharRNN(nn.Module):
    def __init__(self, vocab, hidden=64):
        super().__init__()
        self.embed = nn.Embedding(vocab, 24)
        self.cell = nn.GRUCell(24, hidden)
        self.decoder = nn.Linear(hidden, vocab)

    def forward(self, tokens, state):
        logits = []
        for t in range(tokens.size(1)):
            state = self.cell(self.embed(tokens[:, t]), state)
            logits.append(self.decoder(state))
        return torch.stack(logits, 1), state


def batches(batch=8, chunk=24):
    data = torch.tensor([INDEX[c] for c in TEXT])
    length = len(data) // batch
    data = data[: batch * length].view(batch, length)
    for start in range(0, length - chunk - 1, chunk):
        yield data[:, start : start + chunk], data[:, start + 1 : start + chunk + 1]


def train(epochs=6, lr=3e-3):
    torch.manual_seed(11)
    model = CharRNN(len(CHARS))
    optimizer = torch.optim.Adam(model.parameters(), lr=lr)
    criterion = nn.CrossEntropyLoss()
    for epoch in range(epochs):
        state = torch.zeros(8, 64)
        for x, y in batches():
            state = state.detach()
            logits, state = model(x, state)
            loss = criterion(logits.reshape(-1, logits.size(-1)), y.reshape(-1))
            optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 5.0)
            optimizer.step()
        print(epoch, f"{loss.item():.3f}")


if __name__ == "__main__":
    train()
