"""Adapter fine-tuning of a small pretrained language model."""

import torch
from torch import nn
from torch.nn import functional as F

CONFIG = {"vocab": 40, "dim": 32, "layers": 2, "rank": 4, "lr": 3e-3, "steps": 50}


class AdaptedLinear(nn.Module):
    def __init__(self, base, rank):
        super().__init__()
        self.base = base
        self.lora_a = nn.Linear(base.in_features, rank, bias=False)
        self.lora_b = nn.Linear(rank, base.out_features, bias=False)
        nn.init.zeros_(self.lora_b.weight)

    def forward(self, x):
        return self.base(x) + self.lora_b(self.lora_a(x))


class Block(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.norm = nn.LayerNorm(dim)
        self.up = nn.Linear(dim, 2 * dim)
        self.down = nn.Linear(2 * dim, dim)

    def forward(self, x):
        past = x.cumsum(1) / torch.arange(1, x.shape[1] + 1).view(1, -1, 1)
        return x + self.down(F.silu(self.up(self.norm(past))))


class LanguageModel(nn.Module):
    def __init__(self, vocab, dim, layers):
        super().__init__()
        self.tokens = nn.Embedding(vocab, dim)
        self.blocks = nn.ModuleList(Block(dim) for _ in range(layers))
        self.norm = nn.LayerNorm(dim)
        self.head = nn.Linear(dim, vocab)

    def forward(self, ids):
        x = self.tokens(ids)
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x))


def convert(model, rank):
    for module in model.modules():
        module.requires_grad_(False)
    for block in model.blocks:
        block.up = AdaptedLinear(block.up, rank)
        block.down = AdaptedLinear(block.down, rank)
    return model


def main():
    torch.manual_seed(0)
    model = LanguageModel(CONFIG["vocab"], CONFIG["dim"], CONFIG["layers"])
    model = convert(model, CONFIG["rank"])
    params = [p for p in model.parameters() if p.requires_grad]
    optimizer = torch.optim.AdamW(params, lr=CONFIG["lr"], weight_decay=0.1)
    for step in range(CONFIG["steps"]):
        start = torch.randint(0, CONFIG["vocab"], (16, 1))
        ids = (start + 3 * torch.arange(12)) % CONFIG["vocab"]
        logits = model(ids[:, :-1])
        loss = F.cross_entropy(logits.flatten(0, 1), ids[:, 1:].flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 10 == 0:
            print(step, round(loss.item(), 4))
    state = {name: value for name, value in model.state_dict().items() if "lora" in name}
    print("saved", len(state), "tensors")


if __name__ == "__main__":
    main()
