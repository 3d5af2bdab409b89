import argparse
import math
from collections import defaultdict

import torch
import torch.nn.functional as F
from torch import nn
from torch.nn.utils import parametrize
from transformers import GPT2Config, GPT2LMHeadModel


class LowRank(nn.Module):
    def __init__(self, rows, columns, rank, scale):
        super().__init__()
        self.down = nn.Parameter(torch.empty(rank, columns))
        self.up = nn.Parameter(torch.zeros(rows, rank))
        self.scale = scale
        nn.init.kaiming_uniform_(self.down, a=math.sqrt(5))

    def forward(self, weight):
        return weight + self.scale * self.up @ self.down


def adapt(model, rank=4, alpha=8):
    model.requires_grad_(False)
    adapters = nn.ModuleList()
    for block in model.transformer.h:
        for module in (block.attn.c_attn, block.mlp.c_fc):
            adapter = LowRank(*module.weight.shape, rank, alpha / rank)
            parametrize.register_parametrization(module, "weight", adapter)
            adapters.append(adapter)
    return adapters


class Lookahead:
    def __init__(self, optimizer, every=5, share=0.5):
        self.optimizer = optimizer
        self.every = every
        self.share = share
        self.slow = defaultdict(dict)
        self.count = 0

    def zero_grad(self):
        self.optimizer.zero_grad()

    @torch.no_grad()
    def step(self):
        if not self.slow:
            for group in self.optimizer.param_groups:
                for parameter in group["params"]:
                    self.slow[parameter] = parameter.detach().clone()
        self.optimizer.step()
        self.count += 1
        if self.count % self.every == 0:
            for parameter, slow in self.slow.items():
                slow.lerp_(parameter, self.share)
                parameter.copy_(slow)


def build_model():
    return GPT2LMHeadModel(
        GPT2Config(
            vocab_size=40,
            n_positions=24,
            n_embd=32,
            n_layer=2,
            n_head=4,
            bos_token_id=0,
            eos_token_id=0,
        )
    )


def batch(size, length=16):
    start = torch.randint(0, 40, (size, 1))
    return (start + torch.arange(length) * torch.randint(1, 4, (size, 1))) % 40


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=30)
    parser.add_argument("--rank", type=int, default=4)
    args = parser.parse_args()
    torch.manual_seed(55)
    model = build_model()
    warm = torch.optim.AdamW(model.parameters(), lr=3e-3)
    for _ in range(10):
        ids = batch(16)
        warm.zero_grad()
        model(input_ids=ids, labels=ids).loss.backward()
        warm.step()
    adapters = adapt(model, args.rank)
    trained = [*adapters.parameters()]
    optimizer = Lookahead(torch.optim.RAdam(trained, lr=5e-3))
    model.train()
    for step in range(args.steps):
        ids = batch(16)
        logits = model(input_ids=ids).logits[:, :-1]
        loss = F.cross_entropy(logits.flatten(0, 1), ids[:, 1:].flatten())
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(trained, 1.0)
        optimizer.step()
        if step % 10 == 0:
            print(step, loss.item())


if __name__ == "__main__":
    main()
