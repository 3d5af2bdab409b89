import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.checkpoint import checkpoint

torch.manual_seed(7)
VOCAB, DIM, LENGTH = 50, 32, 12


class LoraLinear(nn.Module):
    def __init__(self, base, rank=4, scale=2.0):
        super().__init__()
        self.base = base
        self.lora_a = nn.Parameter(torch.randn(rank, base.in_features) / rank)
        self.lora_b = nn.Parameter(torch.zeros(base.out_features, rank))
        self.scale = scale

    def forward(self, x):
        return self.base(x) + self.scale * F.linear(F.linear(x, self.lora_a), self.lora_b)


class Layer(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(DIM), nn.LayerNorm(DIM)
        self.query, self.key, self.value = (nn.Linear(DIM, DIM) for _ in range(3))
        self.up, self.down = nn.Linear(DIM, 2 * DIM), nn.Linear(2 * DIM, DIM)

    def forward(self, x):
        h = self.norm1(x)
        x = x + F.scaled_dot_product_attention(self.query(h), self.key(h), self.value(h))
        return x + self.down(F.gelu(self.up(self.norm2(x))))


class Classifier(nn.Module):
    def __init__(self, depth=4):
        super().__init__()
        self.embed = nn.Embedding(VOCAB, DIM)
        self.layers = nn.ModuleList(Layer() for _ in range(depth))
        self.head = nn.Linear(DIM, 4)

    def forward(self, tokens):
        x = self.embed(tokens)
        for layer in self.layers:
            x = checkpoint(layer, x, use_reentrant=True)
        return self.head(x.mean(1))


def add_lora(model):
    for p in model.parameters():
        p.requires_grad = False
    for layer in model.layers:
        layer.query = LoraLinear(layer.query)
        layer.value = LoraLinear(layer.value)
    for p in model.head.parameters():
        p.requires_grad = True
    return model


def batches(n, size=16):
    centers = torch.randint(0, VOCAB, (4, 5))
    for _ in range(n):
        label = torch.randint(0, 4, (size,))
        pick = torch.randint(0, 5, (size, LENGTH))
        yield centers[label].gather(1, pick), label


model = add_lora(Classifier())
trainable = [p for p in model.parameters() if p.requires_grad]
print("trainable", sum(p.numel() for p in trainable))
optimizer = torch.optim.AdamW(trainable, lr=5e-3)
schedule = torch.optim.lr_scheduler.LinearLR(optimizer, 1.0, 0.1, total_iters=80)
for step, (tokens, label) in enumerate(batches(80)):
    loss = F.cross_entropy(model(tokens), label)
    loss.backward()
    optimizer.step()
    schedule.step()
    optimizer.zero_grad()
    if step % 20 == 0:
        print(step, round(loss.item(), 3))
