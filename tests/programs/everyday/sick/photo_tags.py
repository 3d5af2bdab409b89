"""Multi-label tagging of photo features."""

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

TAGS = ["beach", "sky", "dog", "tree", "car", "food"]


def build_dataset(n=600, dim=24):
    x = torch.randn(n, dim)
    logits = x @ torch.randn(dim, len(TAGS)) / dim**0.5 - 1.0
    return TensorDataset(x, (logits > 0).float())


class Tagger(nn.Module):
    def __init__(self, dim=24, hidden=64, dropout=0.1):
        super().__init__()
        self.layers = nn.Sequential(
            nn.Linear(dim, hidden),
            nn.LayerNorm(hidden),
            nn.GELU(),
            nn.Dropout(dropout),
            nn.Linear(hidden, len(TAGS)),
        )

    def forward(self, x):
        scores = self.layers(x)
        return torch.sigmoid(scores)


def train(model, loader, epochs=5, lr=1e-3):
    optimizer = torch.optim.AdamW(model.parameters(), lr=lr)
    criterion = nn.BCEWithLogitsLoss()
    history = []
    for epoch in range(epochs):
        total = 0.0
        for x, y in loader:
            optimizer.zero_grad(set_to_none=True)
            loss = criterion(model(x), y)
            loss.backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 5.0)
            optimizer.step()
            total += loss.item()
        history.append(total / len(loader))
        print(f"epoch {epoch + 1}: {history[-1]:.4f}")
    return history


if __name__ == "__main__":
    torch.manual_seed(21)
    train(Tagger(), DataLoader(build_dataset(), batch_size=30, shuffle=True))
