"""Speech enhancement in the spectral domain with a magnitude mask and a phase loss."""

import torch
import torch.nn.functional as F
from torch import nn

WINDOW = 128


class MaskNet(nn.Module):
    def __init__(self, bins=WINDOW // 2 + 1, width=48):
        super().__init__()
        self.norm = nn.LayerNorm(bins)
        self.gru = nn.GRU(bins, width, num_layers=2, batch_first=True, bidirectional=True)
        self.real = nn.Linear(2 * width, bins)
        self.imaginary = nn.Linear(2 * width, bins)

    def forward(self, wave):
        spectrum = torch.stft(
            wave, WINDOW, WINDOW // 2, window=torch.hann_window(WINDOW), return_complex=True
        ).transpose(1, 2)
        x, _ = self.gru(self.norm(torch.log1p(spectrum.abs())))
        a, b = torch.tanh(self.real(x)), torch.tanh(self.imaginary(x))
        real = a * spectrum.real - b * spectrum.imag
        imaginary = a * spectrum.imag + b * spectrum.real
        return real, imaginary


def build_model():
    torch.manual_seed(33)
    return MaskNet()


def build_batch():
    torch.manual_seed(34)
    clean = torch.sin(torch.linspace(0, 300, 2048)).repeat(4, 1) * torch.rand(4, 1)
    noisy = clean + 0.1 * torch.randn(4, 2048)
    clean[:, 1600:] = 0
    noisy[:, 1600:] = 0
    target = torch.stft(
        clean, WINDOW, WINDOW // 2, window=torch.hann_window(WINDOW), return_complex=True
    ).transpose(1, 2)
    return noisy, target


def loss_fn(output, batch):
    real, imaginary = output
    magnitude = torch.sqrt(real.square() + imaginary.square())
    phase = torch.atan2(imaginary + 1e-5, real + 1e-5)
    wrapped = phase - batch[1].angle()
    return F.l1_loss(magnitude, batch[1].abs()) + 0.1 * (1 - wrapped.cos()).mean()
