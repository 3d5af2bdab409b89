import torch
import torch.nn as nn
import torch.nn.functional as F


def stop_gradient(*tensors):
    return tuple(tensor.detach() for tensor in tensors)


class SeriesEncoder(nn.Module):
    def __init__(self, width=32, size=24):
        super().__init__()
        self.convolutions = nn.Sequential(
            nn.Conv1d(2, width, 5, stride=2), nn.BatchNorm1d(width), nn.ReLU(),
            nn.Conv1d(width, width, 5, stride=2), nn.BatchNorm1d(width), nn.ReLU(),
        )
        self.project = nn.Sequential(nn.Linear(width, size), nn.BatchNorm1d(size), nn.ReLU(), nn.Linear(size, size))

    def forward(self, series):
        return self.project(self.convolutions(series).mean(-1))


class Siamese(nn.Module):
    def __init__(self, size=24):
        super().__init__()
        self.encoder = SeriesEncoder(size=size)
        self.predictor = nn.Sequential(nn.Linear(size, 12), nn.ReLU(), nn.Linear(12, size))

    def forward(self, first, second):
        codes = self.encoder(first), self.encoder(second)
        targets = stop_gradient(*codes)
        return tuple(self.predictor(code) for code in codes), targets


def agreement(prediction, target):
    return F.cosine_similarity(prediction, target, dim=-1).mean()


def build_model():
    torch.manual_seed(15)
    return Siamese()


def augment(series, generator):
    scale = 0.8 + 0.4 * torch.rand(len(series), 2, 1, generator=generator)
    return series * scale + 0.1 * torch.randn(series.shape, generator=generator)


def build_batch():
    generator = torch.Generator().manual_seed(44)
    time = torch.arange(64) / 8
    speed = 0.5 + 2 * torch.rand(32, 2, 1, generator=generator)
    series = torch.sin(speed * time)
    return {"first": augment(series, generator), "second": augment(series, generator)}


def loss_fn(output, batch):
    (first, second), (first_target, second_target) = output
    return -(agreement(first, second_target) + agreement(second, first_target)) / 2
