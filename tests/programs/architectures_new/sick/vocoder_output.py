"""A vocoder: transposed convolutions with residual stacks from mel frames to samples."""

import torch
import torch.nn.functional as F
from torch import nn
from torch.nn.utils.parametrizations import weight_norm


class ResidualStack(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.layers = nn.ModuleList(
            [
                nn.Sequential(
                    nn.LeakyReLU(0.2),
                    weight_norm(nn.Conv1d(width, width, 3, padding=d, dilation=d)),
                    nn.LeakyReLU(0.2),
                    weight_norm(nn.Conv1d(width, width, 1)),
                )
                for d in (1, 3, 9)
            ]
        )

    def forward(self, x):
        for layer in self.layers:
            x = x + layer(x)
        return x


class Vocoder(nn.Module):
    def __init__(self, mels=20, width=64):
        super().__init__()
        self.input = weight_norm(nn.Conv1d(mels, width, 7, padding=3))
        stages = []
        for rate in (4, 4, 2):
            stages += [
                nn.LeakyReLU(0.2),
                weight_norm(nn.ConvTranspose1d(width, width // 2, 2 * rate, rate, rate // 2)),
                ResidualStack(width // 2),
            ]
            width //= 2
        self.stages = nn.Sequential(*stages)
        output = nn.Conv1d(width, 1, 7, padding=3)
        nn.init.zeros_(output.weight)
        nn.init.zeros_(output.bias)
        self.output = weight_norm(output)

    def forward(self, mel):
        x = self.stages(self.input(mel))
        return torch.tanh(self.output(F.leaky_relu(x, 0.2)))


def build_model():
    torch.manual_seed(83)
    return Vocoder()


def build_batch():
    torch.manual_seed(84)
    return torch.randn(3, 20, 16), torch.sin(torch.linspace(0, 80, 512)).expand(3, 1, -1) * 0.5


def loss_fn(output, batch):
    def spectrum(x):
        return torch.stft(
            x.squeeze(1), 64, 16, window=torch.hann_window(64), return_complex=True
        ).abs()

    return F.l1_loss(output, batch[1]) + F.l1_loss(spectrum(output), spectrum(batch[1]))
