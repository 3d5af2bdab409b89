from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, Dataset


@dataclass
class DetectorConfig:
    classes: int = 2
    channels: tuple[int, ...] = (8, 16, 24)
    out_channels: int = 16
    size: int = 32
    base_lr: float = 2e-3
    weight_decay: float = 1e-4
    bias_lr_factor: float = 2.0


class Squares(Dataset):
    def __init__(self, config, count):
        self.config = config
        self.generator = torch.Generator().manual_seed(4)
        self.items = [self.draw() for _ in range(count)]

    def draw(self):
        size = self.config.size
        side = int(torch.randint(6, 14, (), generator=self.generator))
        kind = int(torch.randint(0, 2, (), generator=self.generator))
        left, top = torch.randint(0, size - side, (2,), generator=self.generator).tolist()
        image = 0.1 * torch.randn(3, size, size, generator=self.generator)
        image[kind, top : top + side, left : left + side] += 1.0
        box = torch.tensor([left, top, left + side, top + side]) / size
        return image, kind, box

    def __len__(self):
        return len(self.items)

    def __getitem__(self, index):
        return self.items[index]


class Backbone(nn.Module):
    def __init__(self, channels):
        super().__init__()
        stages, inputs = [], 3
        for outputs in channels:
            stages.append(
                nn.Sequential(
                    nn.Conv2d(inputs, outputs, 3, 2, 1), nn.GroupNorm(4, outputs), nn.ReLU()
                )
            )
            inputs = outputs
        self.stages = nn.ModuleList(stages)

    def forward(self, x):
        features = []
        for stage in self.stages:
            x = stage(x)
            features.append(x)
        return features


class FPN(nn.Module):
    def __init__(self, bottom_up, channels, out_channels):
        super().__init__()
        self.bottom_up = bottom_up
        lateral, output = [], []
        for index, inputs in enumerate(channels):
            lateral_conv = nn.Conv2d(inputs, out_channels, 1)
            output_conv = nn.Conv2d(out_channels, out_channels, 3, padding=1)
            self.add_module(f"fpn_lateral{index}", lateral_conv)
            lateral.append(lateral_conv)
            output.append(output_conv)
        self.lateral_convs = lateral[::-1]
        self.output_convs = output[::-1]

    def forward(self, x):
        features = self.bottom_up(x)[::-1]
        previous = self.lateral_convs[0](features[0])
        results = [self.output_convs[0](previous)]
        pairs = zip(self.lateral_convs[1:], self.output_convs[1:], features[1:], strict=True)
        for lateral, output, feature in pairs:
            previous = lateral(feature) + F.interpolate(previous, scale_factor=2.0)
            results.append(output(previous))
        return results


class Detector(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.fpn = FPN(Backbone(config.channels), config.channels, config.out_channels)
        self.scores = nn.Linear(config.out_channels, config.classes)
        self.boxes = nn.Linear(config.out_channels * len(config.channels), 4)

    def forward(self, images):
        pooled = [level.amax((2, 3)) for level in self.fpn(images)]
        scores = sum(self.scores(level) for level in pooled) / len(pooled)
        return scores, self.boxes(torch.cat(pooled, dim=1))


def build_optimizer(model, config):
    groups = []
    for name, parameter in model.named_parameters():
        bias = name.endswith("bias")
        groups.append(
            {
                "params": [parameter],
                "lr": config.base_lr * (config.bias_lr_factor if bias else 1.0),
                "weight_decay": 0.0 if bias else config.weight_decay,
            }
        )
    return torch.optim.Adam(groups)


def main():
    torch.manual_seed(1)
    config = DetectorConfig()
    model = Detector(config)
    optimizer = build_optimizer(model, config)
    scheduler = torch.optim.lr_scheduler.MultiStepLR(optimizer, milestones=[24, 32], gamma=0.1)
    loader = DataLoader(Squares(config, 96), batch_size=8, shuffle=True)
    for epoch in range(3):
        for images, kinds, boxes in loader:
            scores, predicted = model(images)
            losses = {
                "loss_cls": F.cross_entropy(scores, kinds),
                "loss_box": F.smooth_l1_loss(predicted, boxes, beta=0.1),
            }
            optimizer.zero_grad()
            sum(losses.values()).backward()
            optimizer.step()
            scheduler.step()
        print(epoch, {name: round(value.item(), 4) for name, value in losses.items()})


if __name__ == "__main__":
    main()
