import torch
import torch.nn as nn
import torch.nn.functional as F

torch.manual_seed(6)


class AttentionPooling(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.query = nn.Linear(dim, dim)
        self.score = nn.Linear(dim, 1, bias=False)

    def forward(self, states):
        energy = self.score(torch.tanh(self.query(states))).squeeze(-1)
        weights = F.softmax(energy, dim=1)
        return (weights.unsqueeze(-1) * states).sum(1)


class SentenceClassifier(nn.Module):
    def __init__(self, vocab=50, dim=32, classes=3):
        super().__init__()
        self.embedding = nn.Embedding(vocab, dim)
        self.gru = nn.GRU(dim, dim // 2, batch_first=True, bidirectional=True)
        self.pool = AttentionPooling(dim)
        self.out = nn.Linear(dim, classes)

    def forward(self, ids):
        states, _ = self.gru(self.embedding(ids))
        return self.out(self.pool(states))


def make_batch(n, vocab=50, length=14):
    """One keyword decides the class; the other words are noise."""
    ids = torch.randint(3, vocab, (n, length))
    label = torch.randint(3, (n,))
    ids[torch.arange(n), torch.randint(length, (n,))] = label
    return ids, label


model = SentenceClassifier()
opt = torch.optim.Adam(model.parameters(), lr=3e-3)
for it in range(150):
    ids, label = make_batch(32)
    logits = model(ids)
    loss = F.cross_entropy(logits, label)
    opt.zero_grad()
    loss.backward()
    opt.step()
    if it % 30 == 0:
        acc = (logits.argmax(1) == label).float().mean()
        print(f"{it} loss={loss.item():.3f} acc={acc.item():.2f}")
