import torch
import torch.nn as nn

torch.manual_seed(24)
table = torch.randn(10, 6)
embedding = nn.Parameter(torch.randn(10, 6) * 0.1)
scale = nn.Parameter(torch.ones(6))
total = torch.zeros(())
for step in range(30):
    rows = torch.randint(0, 10, (8,))
    loss = (embedding[rows] * scale - table[rows]).pow(2).mean() + 0.01 * (scale - 1).pow(2).sum()
    embedding.grad = scale.grad = None
    total = total + loss.detach()
    loss.backward()
    embedding.data -= 0.5 * embedding.grad
    scale.data -= 0.1 * scale.grad
    if step % 6 == 5:
        print(step, loss.item(), total.item() / (step + 1))
