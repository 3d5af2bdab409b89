"""Self-distillation: a teacher copy without gradients, centering and sharpening."""

import copy

import torch
import torch.nn.functional as F
from torch import nn


class Encoder(nn.Module):
    def __init__(self, width=48, outputs=64, depth=4):
        super().__init__()
        self.patches = nn.Conv2d(3, width, 4, stride=4)
        self.token = nn.Parameter(torch.randn(1, 1, width) * 0.02)
        self.positions = nn.Parameter(torch.randn(1, 65, width) * 0.02)
        layer = nn.TransformerEncoderLayer(
            width, 4, 4 * width, dropout=0.0, activation="gelu", batch_first=True, norm_first=True
        )
        self.body = nn.TransformerEncoder(layer, depth, enable_nested_tensor=False)
        self.norm = nn.LayerNorm(width)
        self.head = nn.Sequential(nn.Linear(width, 96), nn.GELU(), nn.Linear(96, 32))
        self.last = nn.utils.parametrizations.weight_norm(nn.Linear(32, outputs, bias=False))
        self.last.parametrizations.weight.original0.requires_grad_(False)

    def forward(self, x):
        x = self.patches(x).flatten(2).transpose(1, 2)
        x = torch.cat([self.token.expand(len(x), -1, -1), x], dim=1) + self.positions
        x = self.norm(self.body(x))[:, 0]
        return self.last(F.normalize(self.head(x), dim=-1))


class Distillation(nn.Module):
    def __init__(self):
        super().__init__()
        self.student = Encoder()
        self.teacher = copy.deepcopy(self.student)
        self.teacher.requires_grad_(False)
        self.register_buffer("center", torch.zeros(64))

    def forward(self, first, second):
        student = self.student(torch.cat([first, second]))
        with torch.no_grad():
            teacher = self.teacher(torch.cat([second, first]))
            target = ((teacher - self.center) / 0.04).softmax(dim=-1)
            self.center.lerp_(teacher.mean(dim=0), 0.1)
        return student / 0.1, target


def build_model():
    torch.manual_seed(223)
    return Distillation()


def build_batch():
    torch.manual_seed(224)
    image = torch.randn(6, 3, 32, 32)
    return (image + 0.2 * torch.randn_like(image), image.flip(3)), None


def loss_fn(output, batch):
    student, target = output
    return -(target * student.log_softmax(dim=-1)).sum(dim=-1).mean()


def build_optimizer(model):
    return torch.optim.AdamW(model.student.parameters(), lr=5e-4, weight_decay=0.04)
