import torch
import torch.nn.functional as F
from torch import nn


class Slices(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList([
            nn.Conv2d(3, 16, 3, padding=1), nn.Conv2d(16, 24, 3, stride=2, padding=1),
            nn.Conv2d(24, 32, 3, stride=2, padding=1),
        ])

    def forward(self, x):
        outputs = []
        for layer in self.layers:
            x = F.relu(layer(x))
            outputs.append(x)
        return outputs


def gram(features):
    flat = features.flatten(2)
    return flat @ flat.transpose(1, 2) / flat.shape[2]


def total_variation(image):
    return (image[..., 1:] - image[..., :-1]).abs().mean() + (
        image[..., 1:, :] - image[..., :-1, :]
    ).abs().mean()


def main():
    torch.manual_seed(3)
    network = Slices().eval()
    for parameter in network.parameters():
        parameter.requires_grad_(False)
    content = torch.rand(1, 3, 32, 32)
    style = torch.rand(1, 3, 32, 32).round()
    with torch.no_grad():
        content_target = network(content)[-1]
        style_targets = [gram(one) for one in network(style)]
    image = content.clone().requires_grad_(True)
    optimizer = torch.optim.Adam([image], lr=0.02)
    for step in range(80):
        outputs = network(image)
        content_loss = F.mse_loss(outputs[-1], content_target)
        style_loss = sum(
            F.mse_loss(gram(one), target) for one, target in zip(outputs, style_targets)
        )
        loss = content_loss + 10 * style_loss + 0.01 * total_variation(image)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        with torch.no_grad():
            image.clamp_(0, 1)
        if step % 20 == 0:
            print(f"{step}: {loss.item():.4f}")


if __name__ == "__main__":
    main()
