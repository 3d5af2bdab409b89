"""Relational graph convolution over a small knowledge graph."""
import torch
import torch.nn.functional as F
from torch import nn

RELATIONS = ("cites", "writes", "teaches")


class RelationalConv(nn.Module):
    def __init__(self, n_in, n_out):
        super().__init__()
        self.own = nn.Linear(n_in, n_out)
        self.by_relation = {name: nn.Linear(n_in, n_out, bias=False) for name in RELATIONS}

    def forward(self, x, edges):
        out = self.own(x)
        for name, layer in self.by_relation.items():
            source, target = edges[name]
            message = layer(x)[source]
            count = x.new_zeros(len(x)).index_add(0, target, x.new_ones(len(target))).clamp_min(1)
            summed = torch.zeros_like(out).index_add(0, target, message)
            out = out + summed / count[:, None]
        return out


class RGCN(nn.Module):
    def __init__(self, nodes, width=16, classes=4):
        super().__init__()
        self.embedding = nn.Parameter(0.3 * torch.randn(nodes, width))
        self.conv1 = RelationalConv(width, width)
        self.conv2 = RelationalConv(width, classes)

    def forward(self, batch):
        h = F.elu(self.conv1(self.embedding, batch["edges"]))
        return self.conv2(h, batch["edges"])


def build_model():
    torch.manual_seed(205)
    return RGCN(nodes=30)


def build_batch():
    g = torch.Generator().manual_seed(206)
    edges = {name: torch.randint(0, 30, (2, 60), generator=g) for name in RELATIONS}
    known = torch.rand(30, generator=g) < 0.6
    label = torch.randint(0, 4, (30,), generator=g)
    return {"edges": edges, "known": known, "label": label}


def loss_fn(output, batch):
    known = batch["known"]
    return F.cross_entropy(output[known], batch["label"][known])
