import torch
from torch import nn


def step_fn(model, optimizer, sequence, target):
    optimizer.zero_grad()
    _, (h, _) = model["rnn"](sequence)
    loss = nn.functional.mse_loss(model["out"](h[-1]), target)
    loss.backward()
    optimizer.step()
    nn.utils.clip_grad_norm_(model.parameters(), 0.5)
    return loss.item()


torch.manual_seed(8)
model = nn.ModuleDict({"rnn": nn.LSTM(2, 24, batch_first=True), "out": nn.Linear(24, 1)})
optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
for it in range(60):
    seq = torch.rand(16, 12, 2)
    value = step_fn(model, optimizer, seq, 3 * (seq[..., :1] * seq[..., 1:]).sum(1))
    if it % 15 == 0 or it == 59:
        print(it, f"{value:.4f}")
