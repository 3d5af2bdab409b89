import torch
import torch.nn.functional as F
from torch import nn


class Layer(nn.Module):
    def __init__(self, width, heads=2):
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.attn = nn.MultiheadAttention(width, heads, batch_first=True)
        self.ff = nn.Sequential(nn.LayerNorm(width), nn.Linear(width, 2 * width), nn.GELU(), nn.Linear(2 * width, width))

    def forward(self, x, mask):
        h = self.norm(x)
        x = x + self.attn(h, h, h, key_padding_mask=mask, need_weights=False)[0]
        return x + self.ff(x)


class Encoder(nn.Module):
    def __init__(self, vocab=30, width=24, depth=4, drop=0.3):
        super().__init__()
        self.embed = nn.Embedding(vocab, width, padding_idx=0)
        self.position = nn.Parameter(torch.zeros(1, 12, width))
        self.layers = nn.ModuleList(Layer(width) for _ in range(depth))
        self.head = nn.Linear(width, 3)
        self.drop = drop

    def forward(self, tokens):
        mask = tokens == 0
        x = self.embed(tokens) + self.position
        for layer in self.layers:
            if self.training and torch.rand(()) < self.drop:
                continue
            x = layer(x, mask)
        keep = (~mask).unsqueeze(-1)
        return self.head((x * keep).sum(1) / keep.sum(1))


def main():
    torch.manual_seed(14)
    model = Encoder()
    optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)
    for step in range(60):
        tokens = torch.randint(1, 30, (24, 12))
        length = torch.randint(4, 13, (24, 1))
        tokens[torch.arange(12) >= length] = 0
        labels = tokens[:, 0] % 3
        loss = F.cross_entropy(model(tokens), labels)
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        if step % 20 == 0:
            print(step, loss.item())


if __name__ == "__main__":
    main()
