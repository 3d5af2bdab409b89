import torch
import torch.nn as nn
import torch.nn.functional as F


def mlp(*sizes):
    layers = []
    for a, b in zip(sizes, sizes[1:]):
        layers += [nn.Linear(a, b), nn.ReLU()]
    return nn.Sequential(*layers[:-1])


class KDLoss(nn.Module):
    def __init__(self, T=4.0, alpha=0.7):
        super().__init__()
        self.T, self.alpha = T, alpha

    def forward(self, student, teacher, labels):
        p = F.softmax(student / self.T, dim=1)
        q = F.softmax(teacher / self.T, dim=1)
        soft = F.kl_div(p, q, reduction="batchmean") * self.T**2
        return self.alpha * soft + (1 - self.alpha) * F.cross_entropy(student, labels)


def accuracy(model, x, y):
    with torch.no_grad():
        return (model(x).argmax(1) == y).float().mean().item()


torch.manual_seed(0)
x = torch.randn(600, 16)
y = (x[:, :5] @ torch.randn(5, 5)).argmax(1)
teacher, student = mlp(16, 128, 128, 5), mlp(16, 24, 5)

opt = torch.optim.Adam(teacher.parameters(), lr=3e-3)
for _ in range(60):
    opt.zero_grad()
    F.cross_entropy(teacher(x), y).backward()
    opt.step()
print("teacher", accuracy(teacher, x, y))

teacher.eval().requires_grad_(False)
criterion = KDLoss()
opt = torch.optim.Adam(student.parameters(), lr=5e-3)
for step in range(80):
    idx = torch.randint(0, 600, (64,))
    with torch.no_grad():
        t_logits = teacher(x[idx])
    loss = criterion(student(x[idx]), t_logits, y[idx])
    opt.zero_grad()
    loss.backward()
    opt.step()
print("student", accuracy(student, x, y), loss.item())
