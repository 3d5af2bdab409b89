import copy
import torch
import torch.nn as nn
import torch.nn.functional as F


class Head(nn.Module):
    def __init__(self, d=16, out=24):
        super().__init__()
        self.mlp = nn.Sequential(nn.Linear(12, 48), nn.GELU(), nn.Linear(48, d))
        self.last = nn.utils.parametrizations.weight_norm(nn.Linear(d, out, bias=False))
        self.last.parametrizations.weight.original0.data.fill_(1)
        self.last.parametrizations.weight.original0.requires_grad = False

    def forward(self, x):
        return self.last(F.normalize(self.mlp(x), dim=-1))


def main():
    torch.manual_seed(0)
    student = Head()
    teacher = Head()
    teacher.load_state_dict(student.state_dict())
    for p in teacher.parameters():
        p.requires_grad = False
    opt = torch.optim.AdamW([p for p in student.parameters() if p.requires_grad], lr=2e-3)
    center = torch.zeros(1, 24)
    for it in range(80):
        x = torch.randn(64, 12) + 3 * F.one_hot(torch.randint(0, 4, (64,)), 12)
        views = [x + 0.2 * torch.randn_like(x) for _ in range(2)]
        with torch.no_grad():
            t = [teacher(v) for v in views]
        loss = 0
        for a in range(2):
            target = F.softmax((t[a] - center) / 0.04, -1)
            loss = loss - (target * F.log_softmax(student(views[1 - a]) / 0.1, -1)).sum(-1).mean() / 2
        opt.zero_grad()
        loss.backward()
        if it < 10:
            for n, p in student.named_parameters():
                if n.startswith("last"):
                    p.grad = None
        nn.utils.clip_grad_norm_(student.parameters(), 3.0)
        opt.step()
        with torch.no_grad():
            m = min(0.99, 0.9 + it * 0.001)
            for ps, pt in zip(student.parameters(), teacher.parameters()):
                pt.mul_(m).add_(ps, alpha=1 - m)
            center = 0.9 * center + 0.1 * torch.cat(t).mean(0, keepdim=True)
    print(loss.item())


main()
