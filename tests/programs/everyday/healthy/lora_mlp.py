import math

import torch
import torch.nn as nn
import torch.nn.functional as F


class LoRALinear(nn.Module):
    def __init__(self, base, rank=4, alpha=8):
        super().__init__()
        self.base = base
        self.lora_A = nn.Parameter(torch.zeros(rank, base.in_features))
        self.lora_B = nn.Parameter(torch.zeros(base.out_features, rank))
        self.scaling = alpha / rank
        self.reset_parameters()

    def reset_parameters(self):
        nn.init.kaiming_uniform_(self.lora_A, a=math.sqrt(5))
        nn.init.zeros_(self.lora_B)

    def forward(self, x):
        update = F.linear(F.linear(x, self.lora_A), self.lora_B)
        return self.base(x) + self.scaling * update


def add_lora(module, rank=4):
    for name, child in module.named_children():
        if isinstance(child, nn.Linear):
            setattr(module, name, LoRALinear(child, rank))
        else:
            add_lora(child, rank)


def mark_only_lora_as_trainable(model):
    for name, param in model.named_parameters():
        param.requires_grad = "lora_" in name


def main():
    torch.manual_seed(50)
    model = nn.Sequential(
        nn.Linear(16, 64), nn.ReLU(), nn.Sequential(nn.Linear(64, 64), nn.ReLU()), nn.Linear(64, 4)
    )
    model.load_state_dict({k: v.clone() for k, v in model.state_dict().items()})
    add_lora(model)
    mark_only_lora_as_trainable(model)
    optimizer = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], lr=5e-3)
    truth = torch.randn(16, 4)
    for step in range(100):
        x = torch.randn(64, 16)
        loss = F.cross_entropy(model(x), (x @ truth).argmax(1))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 25 == 0:
            print(f"step {step} loss {loss.item():.4f}")


if __name__ == "__main__":
    main()
