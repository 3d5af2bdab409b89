import torch
import torch.nn.functional as F
from torch import nn


class SharedNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.trunk = nn.Sequential(nn.Linear(12, 48), nn.ReLU(), nn.Linear(48, 48), nn.ReLU())
        self.regression = nn.Linear(48, 1)
        self.classes = nn.Linear(48, 4)

    def forward(self, x):
        h = self.trunk(x)
        return self.regression(h).squeeze(-1), self.classes(h)


class UncertaintyLoss(nn.Module):
    def __init__(self, tasks=2):
        super().__init__()
        self.log_vars = nn.Parameter(torch.zeros(tasks))

    def forward(self, *losses):
        total = 0.0
        for log_var, loss in zip(self.log_vars, losses):
            total = total + torch.exp(-log_var) * loss + log_var
        return total


class Experiment:
    def __init__(self, lr=3e-3):
        self.model = SharedNet()
        self.criterion = UncertaintyLoss()
        self.optimizer = self.configure_optimizer(lr)

    def configure_optimizer(self, lr):
        parameters = [*self.model.parameters(), *self.criterion.parameters()]
        return torch.optim.Adam(parameters, lr=lr)

    def step(self, x, target, label):
        value, logits = self.model(x)
        loss = self.criterion(F.mse_loss(value, target), F.cross_entropy(logits, label))
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        return loss.item()


def main():
    torch.manual_seed(23)
    experiment = Experiment()
    for step in range(80):
        x = torch.randn(64, 12)
        target = 20 * x[:, 0] + torch.randn(64)
        label = x[:, :4].argmax(1)
        loss = experiment.step(x, target, label)
        if step % 20 == 0:
            print(step, loss, experiment.criterion.log_vars.tolist())


if __name__ == "__main__":
    main()
