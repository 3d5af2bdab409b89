"""A DETR-like detector: frozen stem, object queries, Hungarian-style matching without gradients."""

import torch
import torch.nn.functional as F
from torch import nn


class SetDetector(nn.Module):
    def __init__(self, width=64, queries=12, classes=5):
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(3, 16, 7, 4, 3), nn.ReLU()).requires_grad_(False)
        self.backbone = nn.Sequential(
            nn.Conv2d(16, 32, 3, 2, 1), nn.GroupNorm(8, 32), nn.ReLU(), nn.Conv2d(32, width, 3, 2, 1)
        )
        self.row = nn.Parameter(torch.rand(16, width // 2))
        self.column = nn.Parameter(torch.rand(16, width // 2))
        self.queries = nn.Embedding(queries, width)
        self.transformer = nn.Transformer(
            width, 4, 3, 4, 2 * width, dropout=0.0, batch_first=True, norm_first=True
        )
        self.label = nn.Linear(width, classes + 1)
        self.box = nn.Sequential(nn.Linear(width, width), nn.ReLU(), nn.Linear(width, 4))

    def forward(self, images):
        x = self.backbone(self.stem(images))
        b, c, h, w = x.shape
        position = torch.cat(
            [self.row[:h, None].expand(-1, w, -1), self.column[None, :w].expand(h, -1, -1)], dim=-1
        )
        memory = x.flatten(2).transpose(1, 2) + position.flatten(0, 1)
        y = self.transformer(memory, self.queries.weight.expand(b, -1, -1))
        return self.label(y), self.box(y).sigmoid()


def build_model():
    torch.manual_seed(217)
    return SetDetector()


def build_batch():
    torch.manual_seed(218)
    return torch.randn(3, 3, 64, 64), (torch.randint(0, 5, (3, 4)), torch.rand(3, 4, 4))


@torch.no_grad()
def match(logits, boxes, labels, targets):
    cost = torch.cdist(boxes, targets, p=1) - logits.softmax(dim=-1)[:, labels]
    chosen = []
    for column in range(len(labels)):
        order = cost[:, column].argsort().tolist()
        chosen.append(next(row for row in order if row not in chosen))
    return torch.tensor(chosen)


def loss_fn(output, batch):
    logits, boxes = output
    total = 0.0
    weight = torch.ones(logits.shape[-1])
    weight[-1] = 0.1
    for i, (labels, targets) in enumerate(zip(*batch[1])):
        row = match(logits[i], boxes[i], labels, targets)
        classes = torch.full((logits.shape[1],), logits.shape[-1] - 1)
        classes[row] = labels
        total = total + F.cross_entropy(logits[i], classes, weight) + 5 * F.l1_loss(boxes[i][row], targets)
    return total / len(logits)


def build_optimizer(model):
    backbone = list(model.backbone.parameters())
    known = {id(p) for p in backbone}
    rest = [p for p in model.parameters() if p.requires_grad and id(p) not in known]
    return torch.optim.AdamW([{"params": backbone, "lr": 1e-5}, {"params": rest}], lr=1e-4)
