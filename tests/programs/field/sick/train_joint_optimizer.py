import torch
import torch.nn.functional as F
from torch import nn


class AdversarialAutoencoder(nn.Module):
    def __init__(self, n_in=12, latent=2):
        super().__init__()
        self.encoder = nn.Sequential(nn.Linear(n_in, 40), nn.ReLU(), nn.Linear(40, latent))
        self.decoder = nn.Sequential(nn.Linear(latent, 40), nn.ReLU(), nn.Linear(40, n_in))
        self.critic = nn.Sequential(nn.Linear(latent, 24), nn.LeakyReLU(0.2), nn.Linear(24, 1))


def get_optimizers(model, lr):
    reconstruction = [*model.encoder.parameters(), *model.decoder.parameters()]
    return {
        "auto": torch.optim.Adam(reconstruction, lr=lr),
        "critic": torch.optim.Adam(model.parameters(), lr=lr),
        "encoder": torch.optim.Adam(model.encoder.parameters(), lr=lr / 2),
    }


def bce(logits, real):
    return F.binary_cross_entropy_with_logits(logits, torch.full_like(logits, float(real)))


def train_step(model, opts, x):
    auto = F.mse_loss(model.decoder(model.encoder(x)), x)
    model.zero_grad()
    auto.backward()
    opts["auto"].step()

    prior = torch.randn(len(x), 2)
    code = model.encoder(x)
    critic = bce(model.critic(prior), True) + bce(model.critic(code), False)
    model.zero_grad()
    critic.backward()
    opts["critic"].step()

    fool = bce(model.critic(model.encoder(x)), True)
    model.zero_grad()
    fool.backward()
    opts["encoder"].step()
    return auto.item(), critic.item(), fool.item()


def main():
    torch.manual_seed(7)
    model = AdversarialAutoencoder()
    opts = get_optimizers(model, 2e-3)
    mix = torch.randn(3, 12)
    for step in range(150):
        logs = train_step(model, opts, torch.tanh(torch.randn(64, 3) @ mix))
        if step % 30 == 0:
            print(step, [round(v, 3) for v in logs])


main()
