import torch
import torch.nn as nn

torch.manual_seed(15)
model = nn.Sequential(nn.Linear(10, 50), nn.ReLU(), nn.Linear(50, 1))
opt = torch.optim.Adam(model.parameters(), lr=5e-3)
N_ACC = 3


def get_batch():
    x = torch.randn(12, 10)
    return x, 5 * x[:, :1] - 3 * x[:, 1:2] * x[:, 2:3]


for update in range(50):
    opt.zero_grad()
    total = 0
    for micro in range(N_ACC):
        x, y = get_batch()
        loss = nn.functional.mse_loss(model(x), y) / N_ACC
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        total += loss.item()
    opt.step()
    if update % 10 == 9:
        print(update, total)
