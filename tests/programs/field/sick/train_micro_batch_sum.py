import torch
import torch.nn.functional as F
from torch import nn


class UNet1d(nn.Module):
    def __init__(self, width=24):
        super().__init__()
        self.down = nn.Conv1d(2, width, 3, padding=1)
        self.mid = nn.Conv1d(width, width, 3, padding=1)
        self.up = nn.Conv1d(2 * width, 1, 3, padding=1)

    def forward(self, x, t):
        level = t.view(-1, 1, 1).expand(-1, 1, x.shape[-1])
        h = F.silu(self.down(torch.cat([x, level], 1)))
        return self.up(torch.cat([h, F.silu(self.mid(h))], 1))


class TrainLoop:
    def __init__(self, model, data, batch_size=64, microbatch=8, lr=0.02):
        self.model = model
        self.data = data
        self.batch_size = batch_size
        self.microbatch = microbatch if microbatch > 0 else batch_size
        self.opt = torch.optim.SGD(model.parameters(), lr=lr)

    def run_loop(self, steps):
        for step in range(steps):
            loss = self.run_step(next(self.data))
            if step % 20 == 0:
                print(step, round(loss, 4))

    def run_step(self, batch):
        self.opt.zero_grad()
        loss = self.forward_backward(batch)
        self.opt.step()
        return loss

    def forward_backward(self, batch):
        total = 0.0
        for i in range(0, batch.shape[0], self.microbatch):
            micro = batch[i : i + self.microbatch]
            t = torch.rand(len(micro))
            noise = torch.randn_like(micro)
            noisy = (1 - t).view(-1, 1, 1) * micro + t.view(-1, 1, 1) * noise
            loss = F.mse_loss(self.model(noisy, t), noise)
            loss.backward()
            total += loss.item() * len(micro) / len(batch)
        return total


def waves(batch_size):
    grid = torch.linspace(0, 6.28, 32)
    while True:
        yield torch.sin(grid * torch.randint(1, 4, (batch_size, 1, 1)) + torch.rand(batch_size, 1, 1) * 6.28)


if __name__ == "__main__":
    torch.manual_seed(26)
    TrainLoop(UNet1d(), waves(64)).run_loop(80)
