import torch
from torch import nn
import torch.nn.functional as F

torch.manual_seed(76)
teacher = nn.Sequential(nn.Linear(10, 64), nn.ReLU(), nn.Linear(64, 4)).eval()
student = nn.Sequential(nn.Linear(10, 16), nn.ReLU(), nn.Linear(16, 4))
optimizer = torch.optim.Adam(student.parameters(), lr=8e-3)
T = 2.0
for step in range(120):
    x = torch.randn(64, 10) * 2
    with torch.no_grad():
        soft = F.softmax(teacher(x) / T, -1)
        hard = soft.argmax(-1)
    logits = student(x)
    loss = T * T * F.kl_div(F.log_softmax(logits / T, -1), soft, reduction="batchmean") + 0.3 * F.cross_entropy(logits, hard)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step % 30 == 29:
        print(step, loss.item())
