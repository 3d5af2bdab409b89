from dataclasses import dataclass

import torch
from accelerate import Accelerator
from accelerate.utils import set_seed
from torch import nn
from torch.utils.data import DataLoader, Dataset


@dataclass
class Options:
    classes: int = 4
    size: int = 16
    width: int = 12
    batch_size: int = 4
    accumulate: int = 4
    epochs: int = 2
    lr: float = 0.02
    momentum: float = 0.9


class Scenes(Dataset):
    def __init__(self, options, count):
        self.options = options
        self.count = count

    def __len__(self):
        return self.count

    def __getitem__(self, index):
        generator = torch.Generator().manual_seed(index)
        options = self.options
        mask = torch.zeros(options.size, options.size, dtype=torch.long)
        for kind in range(1, options.classes):
            top, left = torch.randint(0, options.size - 6, (2,), generator=generator).tolist()
            mask[top : top + 6, left : left + 6] = kind
        colours = torch.eye(options.classes)[mask].permute(2, 0, 1)[:3]
        noise = 0.4 * torch.randn(3, options.size, options.size, generator=generator)
        return {"image": colours + noise, "mask": mask}


def block(inputs, outputs):
    return nn.Sequential(
        nn.Conv2d(inputs, outputs, 3, padding=1),
        nn.GroupNorm(4, outputs),
        nn.SiLU(),
        nn.Conv2d(outputs, outputs, 3, padding=1),
        nn.GroupNorm(4, outputs),
        nn.SiLU(),
    )


class UNet(nn.Module):
    def __init__(self, options):
        super().__init__()
        width = options.width
        self.enter = block(3, width)
        self.down = block(width, 2 * width)
        self.up = nn.ConvTranspose2d(2 * width, width, 2, 2)
        self.leave = block(2 * width, width)
        self.head = nn.Conv2d(width, options.classes, 1)

    def forward(self, image):
        wide = self.enter(image)
        deep = self.down(nn.functional.max_pool2d(wide, 2))
        return self.head(self.leave(torch.cat([wide, self.up(deep)], dim=1)))


def prepare(accelerator, model, optimizer, loader):
    loader = accelerator.prepare_data_loader(loader)
    model = accelerator.prepare_model(model)
    return model, optimizer, loader


def fit(accelerator, model, optimizer, loader, epochs):
    criterion = nn.CrossEntropyLoss(weight=torch.tensor([0.5, 1.0, 1.0, 1.0]))
    for epoch in range(epochs):
        model.train()
        total = 0.0
        for batch in loader:
            with accelerator.accumulate(model):
                loss = criterion(model(batch["image"]), batch["mask"])
                accelerator.backward(loss)
                optimizer.step()
                optimizer.zero_grad()
            total += loss.item()
        accelerator.print(epoch, total / len(loader))


def main():
    set_seed(6)
    options = Options()
    accelerator = Accelerator(cpu=True, gradient_accumulation_steps=options.accumulate)
    model = UNet(options)
    optimizer = torch.optim.SGD(model.parameters(), lr=options.lr, momentum=options.momentum)
    loader = DataLoader(Scenes(options, 96), options.batch_size, shuffle=True)
    model, optimizer, loader = prepare(accelerator, model, optimizer, loader)
    fit(accelerator, model, optimizer, loader, options.epochs)


if __name__ == "__main__":
    main()
