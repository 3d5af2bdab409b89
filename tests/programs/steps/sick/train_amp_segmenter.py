"""Binary masks of synthetic discs, trained in mixed precision."""

import torch
from torch import nn
from torch.nn import functional as F


def discs(count, size, generator):
    grid = torch.stack(
        torch.meshgrid(torch.arange(size), torch.arange(size), indexing="ij")
    ).float()
    centre = torch.rand(count, 2, 1, 1, generator=generator) * size
    radius = 2 + 4 * torch.rand(count, 1, 1, generator=generator)
    mask = ((grid - centre).square().sum(1).sqrt() < radius).float()
    image = mask + 0.4 * torch.randn(count, size, size, generator=generator)
    return image.unsqueeze(1), mask.unsqueeze(1)


class Segmenter(nn.Module):
    def __init__(self, width=12):
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(1, width, 3, padding=1),
            nn.ReLU(),
            nn.Conv2d(width, width, 3, padding=1),
            nn.ReLU(),
        )
        self.head = nn.Conv2d(width, 1, 1)

    def forward(self, image):
        return self.head(self.body(image))


def main():
    torch.set_num_threads(1)
    torch.manual_seed(3)
    generator = torch.Generator().manual_seed(3)
    model = Segmenter()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    scaler = torch.amp.GradScaler("cpu", init_scale=1024.0)
    for step in range(40):
        image, mask = discs(8, 16, generator)
        optimizer.zero_grad(set_to_none=True)
        with torch.autocast("cpu", dtype=torch.bfloat16):
            logits = model(image)
        loss = F.binary_cross_entropy_with_logits(logits.float(), mask)
        scaler.scale(loss).backward()
        optimizer.step()
        if step % 10 == 0:
            print(f"step {step} loss {loss.item():.4f}")


if __name__ == "__main__":
    main()
