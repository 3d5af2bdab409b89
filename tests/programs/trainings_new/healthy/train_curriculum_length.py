import torch
from torch import nn

torch.manual_seed(79)


class Adder(nn.Module):
    def __init__(self):
        super().__init__()
        self.rnn = nn.GRU(2, 24, batch_first=True)
        self.out = nn.Linear(24, 1)

    def forward(self, x):
        return self.out(self.rnn(x)[0][:, -1])


model = Adder()
optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
for stage, length in enumerate((3, 5, 8, 12)):
    for _ in range(30):
        value = torch.rand(32, length)
        marked = torch.zeros(32, length)
        marked[torch.arange(32), torch.randint(0, length, (32,))] = 1.0
        loss = nn.functional.mse_loss(model(torch.stack([value, marked], -1)), (value * marked).sum(1, keepdim=True))
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 50.0)
        optimizer.step()
    print(stage, length, loss.item())
