import io

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.checkpoint import checkpoint
from torch.utils.data import DataLoader

WORDS, MASK, PAD = 42, 1, 0


class Layer(nn.TransformerEncoderLayer):
    def __init__(self, dim):
        super().__init__(dim, 4, 2 * dim, dropout=0.0, batch_first=True, norm_first=True)


class MaskedModel(nn.Module):
    def __init__(self, dim=32, depth=2):
        super().__init__()
        self.embedding = nn.Embedding(WORDS, dim, padding_idx=PAD)
        self.position = nn.Parameter(0.02 * torch.randn(16, dim))
        self.layers = nn.ModuleList(Layer(dim) for _ in range(depth))
        self.norm = nn.LayerNorm(dim)
        self.bias = nn.Parameter(torch.zeros(WORDS))
        nn.init.normal_(self.embedding.weight, std=0.1)
        with torch.no_grad():
            self.embedding.weight[PAD] = 0

    def forward(self, ids):
        x = self.embedding(ids) + self.position[: ids.shape[1]]
        padding = ids == PAD
        for layer in self.layers:
            x = checkpoint(layer, x, None, padding, use_reentrant=False)
        return F.linear(self.norm(x), self.embedding.weight, self.bias)


def sentence():
    length = int(torch.randint(8, 17, (1,)))
    start, step = int(torch.randint(0, 40, (1,))), int(torch.randint(1, 3, (1,)))
    return (start + step * torch.arange(length)) % 40 + 2


def collate(batch):
    labels = nn.utils.rnn.pad_sequence(batch, batch_first=True, padding_value=PAD)
    hidden = (torch.rand(labels.shape) < 0.2) & (labels != PAD)
    hidden[:, 0] = True
    return labels.masked_fill(hidden, MASK), labels.masked_fill(~hidden, -100)


def groups(loader, size):
    group = []
    for batch in loader:
        group.append(batch)
        if len(group) == size:
            yield group
            group = []
    if group:
        yield group


def update(model, optimizer, group):
    tokens = sum((labels != -100).sum() for _, labels in group)
    optimizer.zero_grad()
    total = 0.0
    for ids, labels in group:
        with torch.autocast("cpu", dtype=torch.bfloat16):
            scores = model(ids)
        loss = F.cross_entropy(
            scores.float().flatten(0, 1), labels.flatten(), ignore_index=-100, reduction="sum"
        )
        (loss / tokens).backward()
        total += loss.item()
    nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    return total / tokens.item()


def main():
    torch.manual_seed(15)
    data = [sentence() for _ in range(220)]
    loader = DataLoader(data, batch_size=16, shuffle=True, collate_fn=collate)
    model = MaskedModel()
    optimizer = torch.optim.AdamW(model.parameters(), lr=4e-3)
    saved = io.BytesIO()
    for epoch in range(4):
        if epoch == 2:
            saved.seek(0)
            state = torch.load(saved)
            model.load_state_dict(state["model"])
            optimizer.load_state_dict(state["optimizer"])
        losses = [update(model, optimizer, group) for group in groups(loader, 3)]
        print(f"epoch {epoch}: {sum(losses) / len(losses):.3f}")
        if epoch == 1:
            torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict()}, saved)


if __name__ == "__main__":
    main()
