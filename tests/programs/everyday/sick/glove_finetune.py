import torch
import torch.nn as nn
import torch.nn.functional as F

torch.manual_seed(66)
VOCAB, DIM = 80, 24


def load_vectors():
    """Word vectors that an earlier project left behind."""
    return torch.randn(VOCAB, DIM) * 0.4


class TextCNN(nn.Module):
    def __init__(self, vectors, classes=2, filters=16):
        super().__init__()
        self.embedding = nn.Embedding.from_pretrained(vectors, padding_idx=0)
        self.convs = nn.ModuleList([nn.Conv1d(DIM, filters, k, padding=k // 2) for k in (1, 3)])
        self.fc = nn.Linear(2 * filters, classes)

    def forward(self, ids):
        x = self.embedding(ids).transpose(1, 2)
        x = torch.cat([F.relu(conv(x)).amax(-1) for conv in self.convs], 1)
        return self.fc(x)


model = TextCNN(load_vectors())
rest = [p for n, p in model.named_parameters() if not n.startswith("embedding")]
optimizer = torch.optim.Adam(
    [
        {"params": model.embedding.parameters(), "lr": 1e-2},
        {"params": rest, "lr": 2e-3},
    ]
)
polarity = torch.randn(VOCAB)
for step in range(100):
    ids = torch.randint(1, VOCAB, (48, 10))
    label = (polarity[ids].sum(1) > 0).long()
    loss = F.cross_entropy(model(ids), label)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step % 25 == 0:
        print(f"step {step} loss {loss.item():.4f}")
