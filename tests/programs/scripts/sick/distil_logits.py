import torch
import torch.nn as nn
import torch.nn.functional as F


def make(width, depth):
    layers = [nn.Linear(12, width), nn.ReLU()]
    for _ in range(depth - 1):
        layers += [nn.Linear(width, width), nn.ReLU()]
    return nn.Sequential(*layers, nn.Linear(width, 5))


class Configs:
    temperature = 4.0
    large_weight = 0.9
    small_weight = 0.1
    batch = 64
    epochs = 3
    updates = 40

    def __init__(self):
        torch.manual_seed(31)
        self.rule = torch.randn(12, 5)
        self.large = make(96, 3)
        self.small = make(12, 1)
        self.small_loss = nn.CrossEntropyLoss()
        self.large_loss = nn.KLDivLoss(log_target=True, reduction="batchmean")

    def batches(self, n):
        for _ in range(n):
            x = torch.randn(self.batch, 12)
            yield x, (x @ self.rule + 0.3 * torch.randn(self.batch, 5)).argmax(1)

    def fit_large(self):
        opt = torch.optim.Adam(self.large.parameters(), 3e-3)
        for x, y in self.batches(80):
            opt.zero_grad()
            F.cross_entropy(self.large(x), y).backward()
            opt.step()
        self.large.eval()

    def step(self, x, y):
        with torch.no_grad():
            large_logits = self.large(x)
        output = self.small(x)
        soft_targets = F.log_softmax(large_logits / self.temperature, dim=-1)
        soft_prob = F.log_softmax(large_logits / self.temperature, dim=-1)
        soft_loss = self.large_loss(soft_prob, soft_targets)
        label_loss = self.small_loss(output, y)
        loss = self.large_weight * soft_loss + self.small_weight * label_loss
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        return loss.item()

    def run(self):
        self.fit_large()
        self.optimizer = torch.optim.Adam(self.small.parameters(), 5e-3)
        for epoch in range(self.epochs):
            losses = [self.step(x, y) for x, y in self.batches(self.updates)]
            print(epoch, sum(losses) / len(losses))


Configs().run()
