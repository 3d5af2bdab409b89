import torch
import torch.nn.functional as F
from torch import nn


class Recon(nn.Module):
    def __init__(self):
        super().__init__()
        self.encoder = nn.Sequential(nn.Linear(16, 48), nn.ReLU(), nn.Linear(48, 12))
        self.decoder = nn.Sequential(nn.ReLU(), nn.Linear(12, 16))

    def forward(self, x):
        z = self.encoder(x)
        return self.decoder(z), z


class LocalUpdate:
    def __init__(self, shift, weight=0.5):
        self.shift, self.weight = shift, weight
        self.discriminator = nn.Sequential(nn.Linear(12, 24), nn.ReLU(), nn.Linear(24, 1))
        self.history = []

    def data(self, n=32):
        clean = torch.sin(torch.arange(16) * 0.4 + torch.rand(n, 1) * 6) + self.shift
        return clean + 0.2 * torch.randn(n, 16), clean

    def train(self, net, target_features, steps=40):
        optimizer = torch.optim.Adam(net.parameters(), lr=2e-3)
        optimizer_d = torch.optim.Adam(self.discriminator.parameters(), lr=2e-3)
        for _ in range(steps):
            under, full = self.data()
            output, features = net(under)
            loss_recon = F.l1_loss(output, full)
            fooled = self.discriminator(features)
            loss_adv_g = F.binary_cross_entropy_with_logits(fooled, torch.ones_like(fooled))
            loss = loss_recon + self.weight * loss_adv_g
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            self.history.append(loss_adv_g.detach().item())

            ours = self.discriminator(features.detach())
            theirs = self.discriminator(target_features[torch.randint(len(target_features), (32,))])
            loss_d = F.binary_cross_entropy_with_logits(ours, torch.zeros_like(ours)) + F.binary_cross_entropy_with_logits(theirs, torch.ones_like(theirs))
            optimizer_d.zero_grad()
            loss_d.backward()
            optimizer_d.step()
        return loss_recon.item(), sum(self.history[-10:]) / 10


if __name__ == "__main__":
    torch.manual_seed(16)
    net = Recon()
    sites = [LocalUpdate(shift) for shift in (0.0, 1.0)]
    for round_ in range(3):
        with torch.no_grad():
            features = net(sites[0].data(128)[0])[1]
        for site in sites:
            recon, adversarial = site.train(net, features)
        print(round_, round(recon, 4), round(adversarial, 4))
