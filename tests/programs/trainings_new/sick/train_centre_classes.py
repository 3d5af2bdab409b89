import torch
import torch.nn as nn

torch.manual_seed(7)
gradient_accumulation_steps = 8
model = nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 4))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
centres = torch.randn(4, 16)

history = []
for step in range(1, 161):
    label = torch.randint(0, 4, (16,))
    x = centres[label] + torch.randn(16, 16)
    loss = nn.functional.cross_entropy(model(x), label)
    history.append(loss.item())
    loss = loss / gradient_accumulation_steps
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    if step % 40 == 0:
        print(step, sum(history[-40:]) / 40)
