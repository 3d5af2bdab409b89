"""Networks written out here, one of each kind that people train."""

import torch
from torch import Tensor, nn
from torch.nn import functional

from tests.architectures.case import ArchitectureCase, Built


class TimeResidual(nn.Module):
    """A convolution block of a diffusion model, shifted by the embedded time."""

    def __init__(self, channels_in: int, channels: int, time: int):
        super().__init__()
        self.first = nn.Sequential(
            nn.GroupNorm(2, channels_in), nn.SiLU(), nn.Conv2d(channels_in, channels, 3, padding=1)
        )
        self.time = nn.Linear(time, channels)
        self.second = nn.Sequential(
            nn.GroupNorm(2, channels), nn.SiLU(), nn.Conv2d(channels, channels, 3, padding=1)
        )
        self.skip = nn.Conv2d(channels_in, channels, 1)

    def forward(self, x: Tensor, time: Tensor) -> Tensor:
        hidden = self.first(x) + self.time(time)[:, :, None, None]
        return self.second(hidden) + self.skip(x)


class DiffusionUNet(nn.Module):
    """Predicts the noise in an image; the way down is concatenated to the way up."""

    def __init__(self, width: int = 8, time: int = 16):
        super().__init__()
        self.time = time
        self.embed = nn.Sequential(nn.Linear(time, time), nn.SiLU(), nn.Linear(time, time))
        self.stem = nn.Conv2d(3, width, 3, padding=1)
        self.down = nn.ModuleList(
            [TimeResidual(width, width, time), TimeResidual(width, 2 * width, time)]
        )
        self.middle = TimeResidual(2 * width, 2 * width, time)
        self.attention = nn.MultiheadAttention(2 * width, 2, batch_first=True)
        self.up = nn.ModuleList(
            [TimeResidual(4 * width, width, time), TimeResidual(2 * width, width, time)]
        )
        self.head = nn.Conv2d(width, 3, 3, padding=1)

    def forward(self, x: Tensor, step: Tensor) -> Tensor:
        frequency = torch.exp(-torch.arange(self.time // 2) / self.time)
        angle = step[:, None] * frequency
        time = self.embed(torch.cat([angle.sin(), angle.cos()], dim=1))
        x, skips = self.stem(x), []
        for block in self.down:
            x = block(x, time)
            skips.append(x)
            x = functional.avg_pool2d(x, 2)
        x = self.attend(self.middle(x, time))
        for block in self.up:
            x = functional.interpolate(x, scale_factor=2)
            x = block(torch.cat([x, skips.pop()], dim=1), time)
        return self.head(x)

    def attend(self, x: Tensor) -> Tensor:
        sequence = x.flatten(2).transpose(1, 2)
        mixed, _ = self.attention(sequence, sequence, sequence, need_weights=False)
        return x + mixed.transpose(1, 2).reshape(x.shape)


def diffusion_unet() -> Built:
    x, step = torch.randn(2, 3, 8, 8), torch.tensor([3.0, 40.0])
    return DiffusionUNet(), (x, step, torch.randn(2, 3, 8, 8))


class AdversarialPair(nn.Module):
    """DCGAN: the discriminator's opinion of real images and of generated ones."""

    def __init__(self):
        super().__init__()
        self.generator = nn.Sequential(
            nn.ConvTranspose2d(8, 16, 4, bias=False), nn.BatchNorm2d(16), nn.ReLU(inplace=True),
            nn.ConvTranspose2d(16, 1, 4, 2, 1, bias=False), nn.Tanh(),
        )  # fmt: skip
        self.discriminator = nn.Sequential(
            nn.Conv2d(1, 8, 4, 2, 1, bias=False), nn.LeakyReLU(0.2, inplace=True),
            nn.Conv2d(8, 16, 4, 2, 1, bias=False), nn.BatchNorm2d(16),
            nn.LeakyReLU(0.2, inplace=True), nn.Conv2d(16, 1, 2), nn.Flatten(),
        )  # fmt: skip

    def forward(self, real: Tensor, noise: Tensor) -> Tensor:
        fake = self.generator(noise)
        return torch.cat([self.discriminator(real), self.discriminator(fake)], dim=1)


def dcgan() -> Built:
    target = torch.tensor([[1.0, 0.0]]).expand(4, 2)
    return AdversarialPair(), (torch.randn(4, 1, 8, 8), torch.randn(4, 8, 1, 1), target)


class RecurrentClassifier(nn.Module):
    def __init__(self, recurrent: nn.RNNBase):
        super().__init__()
        self.embedding = nn.Embedding(20, 8, padding_idx=0)
        self.recurrent = recurrent
        self.head = nn.Linear(32, 3)

    def forward(self, ids: Tensor) -> Tensor:
        states, _ = self.recurrent(self.embedding(ids))
        return self.head(states[:, -1])


def lstm() -> Built:
    recurrent = nn.LSTM(8, 16, num_layers=2, dropout=0.1, bidirectional=True, batch_first=True)
    return RecurrentClassifier(recurrent), (torch.randint(0, 20, (3, 7)), torch.tensor([0, 1, 2]))


def gru() -> Built:
    recurrent = nn.GRU(8, 32, batch_first=True)
    return RecurrentClassifier(recurrent), (torch.randint(0, 20, (3, 7)), torch.tensor([0, 1, 2]))


class PackedTagger(nn.Module):
    """An LSTM over sequences of different lengths, packed."""

    def __init__(self):
        super().__init__()
        self.recurrent = nn.LSTM(4, 8, proj_size=4)
        self.head = nn.Linear(4, 2)

    def forward(self, x: Tensor, lengths: Tensor) -> Tensor:
        packed = nn.utils.rnn.pack_padded_sequence(x, lengths, enforce_sorted=False)
        states, _ = nn.utils.rnn.pad_packed_sequence(self.recurrent(packed)[0])
        return self.head(states)


def packed_lstm() -> Built:
    batch = (torch.randn(6, 3, 4), torch.tensor([4, 6, 2]), torch.randn(6, 3, 2))
    return PackedTagger(), batch


class UnrolledCell(nn.Module):
    """A recurrent cell called once for each step of the sequence."""

    def __init__(self):
        super().__init__()
        self.cell = nn.LSTMCell(4, 8)
        self.head = nn.Linear(8, 4)

    def forward(self, x: Tensor) -> Tensor:
        state = None
        outputs = []
        for step in x.unbind(1):
            state = self.cell(step, state)
            outputs.append(self.head(state[0]))
        return torch.stack(outputs, dim=1)


def unrolled_lstm_cell() -> Built:
    return UnrolledCell(), (torch.randn(2, 9, 4), torch.randn(2, 9, 4))


class MaskedEncoder(nn.Module):
    """torch's own transformer layers, and attention by itself, with padded keys."""

    def __init__(self):
        super().__init__()
        layer = nn.TransformerEncoderLayer(16, 2, 32, dropout=0.1, batch_first=True)
        self.encoder = nn.TransformerEncoder(layer, 2)
        self.pool = nn.MultiheadAttention(16, 2, batch_first=True, kdim=16, vdim=16)
        self.query = nn.Parameter(torch.randn(1, 1, 16))

    def forward(self, x: Tensor, padding: Tensor) -> Tensor:
        x = self.encoder(x, src_key_padding_mask=padding)
        query = self.query.expand(x.shape[0], -1, -1)
        pooled, _ = self.pool(query, x, x, key_padding_mask=padding)
        return pooled[:, 0]


def transformer_encoder() -> Built:
    padding = torch.zeros(2, 6, dtype=torch.bool)
    padding[1, 4:] = True
    return MaskedEncoder(), (torch.randn(2, 6, 16), padding, torch.randn(2, 16))


def torch_transformer() -> Built:
    model = nn.Transformer(16, 2, 1, 1, 32, batch_first=True)
    return model, (torch.randn(2, 5, 16), torch.randn(2, 4, 16), torch.randn(2, 4, 16))


class VariationalAutoencoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.encoder = nn.Sequential(nn.Linear(12, 16), nn.ELU())
        self.mean, self.log_variance = nn.Linear(16, 4), nn.Linear(16, 4)
        self.decoder = nn.Sequential(nn.Linear(4, 16), nn.ELU(), nn.Linear(16, 12))

    def forward(self, x: Tensor) -> dict[str, Tensor]:
        hidden = self.encoder(x)
        mean, log_variance = self.mean(hidden), self.log_variance(hidden)
        latent = mean + torch.randn_like(mean) * (0.5 * log_variance).exp()
        return {"image": self.decoder(latent), "mean": mean, "log_variance": log_variance}


def evidence_bound(output: dict[str, Tensor], target: Tensor) -> Tensor:
    mean, log_variance = output["mean"], output["log_variance"]
    divergence = 0.5 * (mean.square() + log_variance.exp() - log_variance - 1).sum(dim=1)
    return functional.mse_loss(output["image"], target) + divergence.mean()


def variational_autoencoder() -> Built:
    x = torch.randn(4, 12)
    return VariationalAutoencoder(), (x, x)


class GraphNetwork(nn.Module):
    """Messages along edges, summed into nodes by scatter."""

    def __init__(self):
        super().__init__()
        self.message = nn.Linear(8, 4)
        self.update = nn.GRUCell(4, 4)
        self.readout = nn.Linear(4, 1)

    def forward(self, nodes: Tensor, edges: Tensor) -> Tensor:
        source, target = edges
        for _ in range(3):
            message = self.message(torch.cat([nodes[source], nodes[target]], dim=1)).relu()
            index = target[:, None].expand_as(message)
            gathered = torch.zeros_like(nodes).scatter_add(0, index, message)
            nodes = self.update(gathered, nodes)
        return self.readout(nodes).sum(dim=0)


def graph_network() -> Built:
    return GraphNetwork(), (torch.randn(6, 4), torch.randint(0, 6, (2, 14)), torch.ones(1))


class RadianceField(nn.Module):
    """NeRF: colour and density along rays, composed by transparency."""

    def __init__(self):
        super().__init__()
        self.trunk = nn.Sequential(nn.Linear(24, 32), nn.ReLU(), nn.Linear(32, 32), nn.ReLU())
        self.density = nn.Linear(32, 1)
        self.colour = nn.Sequential(nn.Linear(32 + 3, 16), nn.ReLU(), nn.Linear(16, 3))

    def forward(self, points: Tensor, directions: Tensor) -> Tensor:
        scaled = points[..., None] * 2.0 ** torch.arange(4)
        hidden = self.trunk(torch.cat([scaled.sin(), scaled.cos()], dim=-1).flatten(-2))
        opacity = 1 - torch.exp(-functional.softplus(self.density(hidden))[..., 0] * 0.1)
        clear = torch.cumprod(1 - opacity + 1e-10, dim=1)
        weight = opacity * torch.cat([torch.ones_like(clear[:, :1]), clear[:, :-1]], dim=1)
        view = directions[:, None].expand(-1, points.shape[1], -1)
        colour = self.colour(torch.cat([hidden, view], dim=-1)).sigmoid()
        return (weight[..., None] * colour).sum(dim=1)


def radiance_field() -> Built:
    return RadianceField(), (torch.randn(5, 8, 3), torch.randn(5, 3), torch.rand(5, 3))


class CouplingFlow(nn.Module):
    """RealNVP: affine couplings; the loss is the negative log-likelihood of the input."""

    def __init__(self):
        super().__init__()
        self.couplings = nn.ModuleList(
            nn.Sequential(nn.Linear(2, 16), nn.Tanh(), nn.Linear(16, 4)) for _ in range(4)
        )

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        volume = torch.zeros(x.shape[0])
        for coupling in self.couplings:
            kept, changed = x.chunk(2, dim=1)
            scale, shift = coupling(kept).chunk(2, dim=1)
            scale = scale.tanh()
            x = torch.cat([changed * scale.exp() + shift, kept], dim=1)
            volume = volume + scale.sum(dim=1)
        return x, volume


def likelihood_loss(output: tuple[Tensor, Tensor], target: Tensor) -> Tensor:
    latent, volume = output
    prior = torch.distributions.Normal(target, 1.0)
    return -(prior.log_prob(latent).sum(dim=1) + volume).mean()


def normalising_flow() -> Built:
    return CouplingFlow(), (torch.randn(6, 4), torch.zeros(6, 4))


NETWORKS = tuple(
    ArchitectureCase(name=build.__name__, build=build, loss=loss)
    for build, loss in (
        (diffusion_unet, functional.mse_loss),
        (dcgan, functional.binary_cross_entropy_with_logits),
        (lstm, functional.cross_entropy),
        (gru, functional.cross_entropy),
        (packed_lstm, functional.mse_loss),
        (unrolled_lstm_cell, functional.mse_loss),
        (transformer_encoder, functional.mse_loss),
        (torch_transformer, functional.mse_loss),
        (variational_autoencoder, evidence_bound),
        (graph_network, functional.mse_loss),
        (radiance_field, functional.mse_loss),
        (normalising_flow, likelihood_loss),
    )
)
