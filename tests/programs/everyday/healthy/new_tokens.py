"""Fine-tune a small language model after new tokens were added."""

import torch
import torch.nn as nn
import torch.nn.functional as F

torch.manual_seed(0)
VOCAB, NEW, LENGTH = 40, 8, 16


class TinyLM(nn.Module):
    def __init__(self, vocab, dim=48):
        super().__init__()
        self.dim = dim
        self.tokens = nn.Embedding(vocab, dim)
        self.rnn = nn.GRU(dim, dim, batch_first=True)
        self.head = nn.Linear(dim, vocab)

    def add_tokens(self, count):
        old = self.tokens, self.head
        vocab = old[0].num_embeddings + count
        self.tokens = nn.Embedding(vocab, self.dim)
        self.head = nn.Linear(self.dim, vocab)
        with torch.no_grad():
            self.tokens.weight[:-count] = old[0].weight
            self.head.weight[:-count] = old[1].weight
            self.head.bias[:-count] = old[1].bias

    def forward(self, ids):
        h, _ = self.rnn(self.tokens(ids))
        return self.head(h)


def sequences(n, vocab):
    start = torch.randint(vocab, (n, 1))
    stride = torch.randint(1, 4, (n, 1))
    return (start + stride * torch.arange(LENGTH + 1)) % vocab


model = TinyLM(VOCAB)
model.add_tokens(NEW)
optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)

for step in range(100):
    ids = sequences(32, VOCAB + NEW)
    logits = model(ids[:, :-1])
    loss = F.cross_entropy(logits.reshape(-1, VOCAB + NEW), ids[:, 1:].reshape(-1))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step % 25 == 0 or step == 99:
        print(f"step {step}: perplexity {loss.exp().item():.2f}")
