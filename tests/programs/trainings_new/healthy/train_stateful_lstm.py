import torch
from torch import nn


class Predictor(nn.Module):
    def __init__(self):
        super().__init__()
        self.lstm = nn.LSTM(1, 20, batch_first=True)
        self.fc = nn.Linear(20, 1)

    def forward(self, x, state):
        out, state = self.lstm(x, state)
        return self.fc(out), state


torch.manual_seed(22)
series = torch.sin(torch.arange(801) * 0.2).view(1, -1, 1)
net = Predictor()
optimizer = torch.optim.Adam(net.parameters(), lr=1e-2)
for epoch in range(3):
    state = None
    for start in range(0, 800, 40):
        inp, want = series[:, start:start + 40], series[:, start + 1:start + 41]
        out, state = net(inp, state)
        state = tuple(s.detach() for s in state)
        loss = nn.functional.mse_loss(out, want)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    print(epoch, loss.item())
