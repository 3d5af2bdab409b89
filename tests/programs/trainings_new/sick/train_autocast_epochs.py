import torch
from torch import nn
from torch.amp import GradScaler, autocast

torch.manual_seed(10)
model = nn.Sequential(nn.Linear(20, 64), nn.ReLU(), nn.Linear(64, 5))
optimizer = torch.optim.SGD(model.parameters(), lr=0.2, momentum=0.9)
scaler = GradScaler("cpu", init_scale=2.0 ** 12)
x = torch.randn(300, 20)
y = x[:, :5].argmax(dim=1)
for epoch in range(10):
    shown = []
    for rows in torch.randperm(300).split(60):
        optimizer.zero_grad()
        with autocast("cpu", dtype=torch.float16):
            logits = model(x[rows])
        loss = nn.functional.cross_entropy(logits.float(), y[rows])
        scaler.scale(loss).backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        scaler.step(optimizer)
        scaler.update()
        shown.append(loss.item())
    print(epoch, sum(shown) / len(shown))
