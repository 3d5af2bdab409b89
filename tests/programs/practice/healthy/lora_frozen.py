import torch
import torch.nn.functional as F
from torch import nn


class LoRA(nn.Module):
    def __init__(self, linear, r=4):
        super().__init__()
        self.linear = linear
        self.down = nn.Linear(linear.in_features, r, bias=False)
        self.up = nn.Linear(r, linear.out_features, bias=False)
        nn.init.zeros_(self.up.weight)

    def forward(self, x):
        return self.linear(x) + self.up(self.down(x))


class Encoder(nn.Module):
    def __init__(self, width=32):
        super().__init__()
        self.embed = nn.Embedding(30, width)
        self.q_proj = nn.Linear(width, width)
        self.k_proj = nn.Linear(width, width)
        self.v_proj = nn.Linear(width, width)
        self.norm = nn.LayerNorm(width)

    def forward(self, tokens):
        x = self.embed(tokens)
        y = F.scaled_dot_product_attention(self.q_proj(x), self.k_proj(x), self.v_proj(x))
        return self.norm(x + y).mean(1)


def add_adapters(encoder):
    encoder.q_proj = LoRA(encoder.q_proj)
    encoder.v_proj = LoRA(encoder.v_proj)


def freeze(module):
    for parameter in module.parameters():
        parameter.requires_grad = False


def build():
    encoder = Encoder()
    freeze(encoder)
    add_adapters(encoder)
    return encoder, nn.Linear(32, 3)


def main():
    torch.manual_seed(21)
    encoder, head = build()
    parameters = [p for m in (encoder, head) for p in m.parameters() if p.requires_grad]
    optimizer = torch.optim.AdamW(parameters, lr=5e-3)
    for step in range(60):
        tokens = torch.randint(0, 30, (32, 10))
        labels = tokens[:, 0] % 3
        loss = F.cross_entropy(head(encoder(tokens)), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 20 == 0:
            print(step, f"{loss.item():.3f}")


if __name__ == "__main__":
    main()
