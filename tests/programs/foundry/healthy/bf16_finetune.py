"""Fine-tunes a small encoder in brain floats."""
import torch
import torch.nn.functional as F
from torch import nn


class Encoder(nn.Module):
    def __init__(self, vocab=40, dim=48, heads=4, depth=2, classes=3):
        super().__init__()
        self.tok = nn.Embedding(vocab, dim)
        self.pos = nn.Parameter(0.02 * torch.randn(1, 32, dim))
        layer = nn.TransformerEncoderLayer(dim, heads, 2 * dim, dropout=0.0, batch_first=True, norm_first=True)
        self.body = nn.TransformerEncoder(layer, depth, enable_nested_tensor=False)
        self.norm = nn.LayerNorm(dim)
        self.head = nn.Linear(dim, classes)

    def forward(self, ids):
        x = self.tok(ids) + self.pos[:, : ids.size(1)]
        return self.head(self.norm(self.body(x)).mean(1))


def load(path=None):
    model = Encoder()
    if path is not None:
        model.load_state_dict(torch.load(path))
    return model


def batch(n, length=20):
    ids = torch.randint(0, 40, (n, length))
    return ids, (ids < 13).sum(1).sub((ids > 26).sum(1)).sign().add(1)


def main():
    torch.manual_seed(117)
    model = load()
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-5, weight_decay=0.0)
    for step in range(20):
        ids, label = batch(32)
        with torch.autocast("cpu", dtype=torch.bfloat16):
            logits = model(ids)
        loss = F.cross_entropy(logits.float(), label)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 5 == 0:
            print(f"{step} loss {loss.item():.4f}")


if __name__ == "__main__":
    main()
