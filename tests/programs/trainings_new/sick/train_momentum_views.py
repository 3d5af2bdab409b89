import copy
import torch
from torch import nn
import torch.nn.functional as F

torch.manual_seed(32)
student = nn.Sequential(nn.Linear(16, 48), nn.ReLU(), nn.Linear(48, 12))
predictor = nn.Sequential(nn.Linear(12, 24), nn.ReLU(), nn.Linear(24, 12))
teacher = copy.deepcopy(student)
learned = [*student.parameters(), *predictor.parameters(), *teacher.parameters()]
optimizer = torch.optim.Adam(learned, lr=3e-3)
for step in range(80):
    x = torch.randn(64, 16)
    one, two = x + 0.2 * torch.randn_like(x), x + 0.2 * torch.randn_like(x)
    online = predictor(student(one))
    goal = teacher(two)
    loss = F.mse_loss(online, goal)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    with torch.no_grad():
        for t, s in zip(teacher.parameters(), student.parameters()):
            t.lerp_(s, 0.02)
    if step % 20 == 19:
        print(step, loss.item())
