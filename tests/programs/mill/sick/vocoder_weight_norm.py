import argparse
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import nn
from torch.nn.utils.parametrizations import weight_norm
from torch.utils.data import DataLoader, Dataset


@dataclass
class VocoderConfig:
    mels: int = 8
    hop: int = 8
    width: int = 24
    dilations: tuple[int, ...] = (1, 3, 9)
    lr: float = 2e-3
    betas: tuple[float, float] = (0.8, 0.99)


class Tones(Dataset):
    def __init__(self, config, count, frames=16):
        generator = torch.Generator().manual_seed(0)
        time = torch.arange(frames * config.hop)
        pitch = 0.05 + 0.3 * torch.rand(count, 1, generator=generator)
        self.audio = 0.6 * torch.sin(pitch * time)
        spectrum = self.audio.unfold(1, config.hop, config.hop)
        self.mels = torch.fft.rfft(spectrum, n=2 * config.mels - 2).abs().transpose(1, 2)

    def __len__(self):
        return len(self.audio)

    def __getitem__(self, index):
        return self.mels[index], self.audio[index]


class ResBlock(nn.Module):
    def __init__(self, width, dilations):
        super().__init__()
        self.convs = nn.ModuleList(
            [nn.Conv1d(width, width, 3, padding=d, dilation=d) for d in dilations]
        )

    def forward(self, x):
        for conv in self.convs:
            x = x + conv(F.leaky_relu(x, 0.1))
        return x


class Vocoder(nn.Module):
    def __init__(self, config):
        super().__init__()
        width = config.width
        self.enter = nn.Conv1d(config.mels, width, 7, padding=3)
        self.up = nn.ConvTranspose1d(width, width, 2 * config.hop, config.hop, config.hop // 2)
        self.block = ResBlock(width, config.dilations)
        self.leave = nn.Conv1d(width, 1, 7, padding=3)

    def forward(self, mels):
        x = F.leaky_relu(self.up(self.enter(mels)), 0.1)
        return torch.tanh(self.leave(self.block(x))).squeeze(1)

    def apply_weight_norm(self):
        for module in [*self.block.convs, self.enter, self.leave]:
            weight_norm(module)


class Experiment:
    def __init__(self, config):
        self.config = config
        self.model = Vocoder(config)
        self.optimizer = self.build_optimizer()
        self.model.apply_weight_norm()
        self.scheduler = torch.optim.lr_scheduler.ExponentialLR(self.optimizer, gamma=0.95)

    def build_optimizer(self):
        return torch.optim.AdamW(
            self.model.parameters(), lr=self.config.lr, betas=self.config.betas
        )

    def loss(self, mels, audio):
        output = self.model(mels)
        spectral = F.l1_loss(torch.fft.rfft(output).abs(), torch.fft.rfft(audio).abs())
        return F.l1_loss(output, audio) + 0.05 * spectral

    def epoch(self, loader):
        losses = []
        for mels, audio in loader:
            self.optimizer.zero_grad()
            loss = self.loss(mels, audio)
            loss.backward()
            self.optimizer.step()
            losses.append(loss.item())
        self.scheduler.step()
        return sum(losses) / len(losses)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=3)
    args = parser.parse_args()
    torch.manual_seed(13)
    config = VocoderConfig()
    experiment = Experiment(config)
    loader = DataLoader(Tones(config, 96), batch_size=8, shuffle=True)
    for epoch in range(args.epochs):
        print(epoch, experiment.epoch(loader))


if __name__ == "__main__":
    main()
