import torch
from torch import nn

torch.manual_seed(73)
cell, readout = nn.GRUCell(1, 24), nn.Linear(24, 1)
optimizer = torch.optim.Adam([*cell.parameters(), *readout.parameters()], lr=1e-2)
wave = torch.sin(torch.arange(1200) * 0.3)
state, loss, history = torch.zeros(1, 24), torch.zeros(()), []
for t in range(1199):
    state = cell(wave[t].view(1, 1), state)
    loss = loss + (readout(state).squeeze() - wave[t + 1]).pow(2) / 20
    if t % 20 == 19:
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(cell.parameters(), 1e3)
        optimizer.step()
        history.append(loss.item())
        state, loss = state.detach(), torch.zeros(())
print(history[0], history[len(history) // 2], history[-1])
