"""Free adversarial training: replay each batch, and reuse the input gradient of the weight step."""

import torch
import torch.nn.functional as F
from torch import nn


class Perturbation:
    def __init__(self, shape, radius):
        self.radius = radius
        self.value = torch.zeros(shape)

    def applied(self, images):
        self.leaf = self.value.clone().requires_grad_(True)
        return (images + self.leaf).clamp(-3, 3)

    def ascend(self):
        self.value = (self.value + self.radius * self.leaf.grad.sign()).clamp(-self.radius, self.radius)


def main(replays=4):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Flatten(), nn.Linear(49, 64), nn.ReLU(), nn.Linear(64, 3))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.03, momentum=0.9, weight_decay=1e-4)
    perturbation = Perturbation((32, 1, 7, 7), radius=0.15)
    templates = torch.randn(3, 1, 7, 7)
    for _ in range(15):
        labels = torch.randint(0, 3, (32,))
        images = templates[labels] + 0.6 * torch.randn(32, 1, 7, 7)
        for _ in range(replays):
            loss = F.cross_entropy(model(perturbation.applied(images)), labels)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            perturbation.ascend()
    print(loss.item())


if __name__ == "__main__":
    main()
