import torch
import torch.nn as nn

torch.manual_seed(10)
stream = torch.sin(torch.arange(0, 4000) * 0.11) + 0.5 * torch.sin(torch.arange(0, 4000) * 0.031)
stream = stream[: 8 * 500].view(8, 500, 1)


class StreamModel(nn.Module):
    def __init__(self, hidden=32):
        super().__init__()
        self.gru = nn.GRU(1, hidden, batch_first=True)
        self.out = nn.Linear(hidden, 1)

    def forward(self, x, state):
        h, state = self.gru(x, state)
        return self.out(h), state


model = StreamModel()
optimizer = torch.optim.Adam(model.parameters(), lr=4e-3)
for epoch in range(3):
    state = None
    for start in range(0, 480, 16):
        if state is not None:
            state = state.detach()
        x = stream[:, start : start + 16]
        y = stream[:, start + 1 : start + 17]
        prediction, state = model(x, state)
        loss = nn.functional.mse_loss(prediction, y)
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
    print(f"epoch {epoch} loss {loss.item():.5f}")
