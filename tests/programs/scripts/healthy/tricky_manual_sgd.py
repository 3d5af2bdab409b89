import torch
import torch.nn as nn

torch.manual_seed(5)
users, items = nn.Embedding(200, 8, sparse=True), nn.Embedding(300, 8, sparse=True)
for table in (users, items):
    nn.init.normal_(table.weight, std=0.1)
sparse = torch.optim.SparseAdam([*users.parameters(), *items.parameters()], lr=1e-2)
scale = torch.ones(8, requires_grad=True)
offset = torch.zeros(1, requires_grad=True)
truth_u, truth_i = torch.randn(200, 3), torch.randn(300, 3)
for step in range(150):
    u, i = torch.randint(0, 200, (256,)), torch.randint(0, 300, (256,))
    rating = (truth_u[u] * truth_i[i]).sum(1) + 1.0
    predicted = (users(u) * scale * items(i)).sum(1) + offset
    loss = (predicted - rating).pow(2).mean()
    loss.backward()
    sparse.step()
    sparse.zero_grad()
    with torch.no_grad():
        for p in (scale, offset):
            p -= 0.02 * p.grad
            p.grad.zero_()
    if step % 30 == 0:
        print(step, loss.item())
