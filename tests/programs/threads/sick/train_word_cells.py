import torch
import torch.nn.functional as F
from torch import nn


class Reader(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(12, 16)
        self.cell = nn.GRUCell(16, 32)
        self.out = nn.Linear(32, 12)

    def forward(self, tokens):
        state = tokens.new_zeros(len(tokens), 32, dtype=torch.float)
        for token in self.embed(tokens).unbind(1):
            state = self.cell(token, state.detach())
        return self.out(state)


torch.manual_seed(19)
net = Reader()
optimizer = torch.optim.Adam(net.parameters(), lr=5e-3)
for step in range(80):
    tokens = torch.randint(0, 12, (48, 6))
    loss = F.cross_entropy(net(tokens), tokens[:, -2])
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step % 20 == 0:
        print(step, loss.item())
