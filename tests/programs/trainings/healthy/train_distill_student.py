from dataclasses import dataclass, field

import torch
import torch.nn as nn
import torch.nn.functional as F


@dataclass
class DistillConfig:
    temperature: float = 3.0
    teacher_steps: int = 60
    student_steps: int = 140
    batch: int = 64
    dims: tuple = (24, 8)
    seed: int = 141
    log: list = field(default_factory=list)


class Task:
    def __init__(self, cfg):
        self.g = torch.Generator().manual_seed(cfg.seed)
        self.w = torch.randn(cfg.dims[0], cfg.dims[1], generator=self.g)
        self.cfg = cfg

    def sample(self):
        x = torch.randn(self.cfg.batch, self.cfg.dims[0], generator=self.g)
        return x, (x @ self.w).argmax(1)


def network(i, h, o):
    return nn.Sequential(nn.Linear(i, h), nn.ReLU(), nn.Linear(h, o))


def fit_teacher(cfg, task):
    teacher = network(cfg.dims[0], 128, cfg.dims[1])
    opt = torch.optim.Adam(teacher.parameters(), lr=1e-2)
    for _ in range(cfg.teacher_steps):
        x, y = task.sample()
        opt.zero_grad()
        F.cross_entropy(teacher(x), y).backward()
        opt.step()
    return teacher.eval().requires_grad_(False)


def distillation_loss(student_logits, teacher_logits, t):
    target = F.softmax(teacher_logits / t, dim=1)
    pred = F.log_softmax(student_logits / t, dim=1)
    return F.kl_div(pred, target, reduction="batchmean") * t * t


def fit_student(cfg, task, teacher):
    student = network(cfg.dims[0], 24, cfg.dims[1])
    opt = torch.optim.SGD(student.parameters(), lr=0.1, momentum=0.9)
    for step in range(cfg.student_steps):
        x, y = task.sample()
        s, t = student(x), teacher(x)
        loss = distillation_loss(s, t, cfg.temperature)
        opt.zero_grad()
        loss.backward()
        opt.step()
        if step % 20 == 0:
            agree = (s.argmax(1) == t.argmax(1)).float().mean().item()
            cfg.log.append((step, round(loss.item(), 4), round(agree, 3)))
    return student


if __name__ == "__main__":
    cfg = DistillConfig()
    torch.manual_seed(cfg.seed)
    task = Task(cfg)
    fit_student(cfg, task, fit_teacher(cfg, task))
    for row in cfg.log:
        print(*row)
