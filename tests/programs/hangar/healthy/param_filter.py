import torch
import torch.nn as nn
import torch.nn.functional as F


class LSTMForecaster(nn.Module):
    def __init__(self, channels=4, width=40):
        super().__init__()
        self.rnn = nn.LSTM(channels, width, num_layers=2, batch_first=True)
        self.head = nn.Linear(width, channels)

    def forward(self, past, steps):
        output, state = self.rnn(past)
        value = self.head(output[:, -1:])
        values = [value]
        for _ in range(steps - 1):
            output, state = self.rnn(value, state)
            value = value + self.head(output)
            values.append(value)
        return torch.cat(values, dim=1)


class TrainState:
    def __init__(self, model, learning_rate, max_norm):
        self.model = model
        self.max_norm = max_norm
        self.parameters = [p for p in model.parameters() if p.requires_grad]
        self.optimizer = torch.optim.Adam(model.parameters(), lr=learning_rate)
        self.describe()

    def describe(self):
        count = sum(p.numel() for p in self.parameters)
        print(f"{type(self.model).__name__}: {count:,} trainable weights")

    def apply(self, loss):
        self.optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(self.parameters, self.max_norm)
        self.optimizer.step()


def prices(count, generator):
    steps = torch.randn(count, 48, 4, generator=generator)
    jumps = (torch.rand(count, 48, 1, generator=generator) < 0.03) * 8 * torch.randn(count, 48, 4, generator=generator)
    walk = (0.2 * steps + jumps).cumsum(1)
    return walk[:, :40], walk[:, 40:]


def run(steps=40):
    torch.manual_seed(3)
    generator = torch.Generator().manual_seed(10)
    state = TrainState(LSTMForecaster(), learning_rate=3e-3, max_norm=1.0)
    for step in range(steps):
        past, future = prices(16, generator)
        loss = F.mse_loss(state.model(past, future.size(1)), future)
        state.apply(loss)
        if step % 10 == 0:
            print(step, loss.item())


if __name__ == "__main__":
    run()
