import torch
import torch.nn as nn
import torch.nn.functional as F


class PCGrad:
    def __init__(self, optimizer):
        self.optimizer = optimizer
        self.params = [p for g in optimizer.param_groups for p in g["params"]]

    def collect(self, loss, retain):
        self.optimizer.zero_grad(set_to_none=False)
        loss.backward(retain_graph=retain)
        for p in self.params:
            if p.grad is None:
                p.grad = torch.zeros_like(p)
        return [p.grad.clone() for p in self.params]

    def step(self, losses):
        grads = [self.collect(l, retain=i < len(losses) - 1) for i, l in enumerate(losses)]
        flat = [torch.cat([g.flatten() for g in gs]) for gs in grads]
        merged = torch.zeros_like(flat[0])
        for i, g in enumerate(flat):
            g = g.clone()
            for j, other in enumerate(flat):
                if i != j:
                    dot = g @ other
                    if dot < 0:
                        g = g - dot / (other @ other + 1e-12) * other
            merged += g
        offset = 0
        for p in self.params:
            p.grad = merged[offset : offset + p.numel()].view_as(p).clone()
            offset += p.numel()
        self.optimizer.step()


class TwoHeads(nn.Module):
    def __init__(self):
        super().__init__()
        self.shared = nn.Sequential(nn.Linear(8, 32), nn.Tanh())
        self.a, self.b = nn.Linear(32, 1), nn.Linear(32, 1)

    def forward(self, x):
        h = self.shared(x)
        return self.a(h), self.b(h)


torch.manual_seed(0)
model = TwoHeads()
trainer = PCGrad(torch.optim.SGD(model.parameters(), lr=0.05))
for it in range(100):
    x = torch.randn(64, 8)
    a, b = model(x)
    la, lb = F.mse_loss(a, x[:, :1].sin()), F.mse_loss(b, x[:, :1] * x[:, 1:2])
    trainer.step([la, lb])
    if it % 25 == 0:
        print(it, la.item(), lb.item())
print("head a", model.a.bias.item())
