import torch
from torch import nn

torch.manual_seed(65)
model = nn.Sequential(nn.Embedding(20, 16), nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 20))
optimizer = torch.optim.Adam(model.parameters(), lr=5e-3)
for update in range(40):
    optimizer.zero_grad()
    count, total = 0, 0.0
    for size in (3, 9, 5, 14):
        token = torch.randint(0, 20, (size, 6))
        loss = nn.functional.cross_entropy(model(token).flatten(0, 1), (3 * token % 20).flatten(), reduction="sum")
        loss.backward()
        count += token.numel()
        total += loss.item()
    for p in model.parameters():
        p.grad.div_(count)
    nn.utils.clip_grad_norm_(model.parameters(), 5.0)
    optimizer.step()
    if update % 10 == 9:
        print(update, total / count)
