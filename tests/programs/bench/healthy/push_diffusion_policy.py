"""Train a flow policy and a diffusion policy on the same demonstrations."""

import torch
from torch import nn
from torch.nn import functional as F

OBS, ACT, STEPS = 5, 2, 40


class ConditionalNet(nn.Module):
    def __init__(self, hidden=48):
        super().__init__()
        self.net = nn.Sequential(
            nn.Linear(OBS + ACT + 1, hidden), nn.Mish(), nn.Linear(hidden, hidden), nn.Mish(),
            nn.Linear(hidden, ACT),
        )

    def forward(self, action, t, obs):
        return self.net(torch.cat([action, t, obs], dim=-1))


def demonstrations(n=32):
    obs = torch.randn(n, OBS)
    action = torch.stack([torch.tanh(obs[:, 0] - obs[:, 1]), torch.sin(obs[:, 2])], dim=1)
    return obs, action


def flow_matching_loss(net, obs, action):
    t = torch.rand(len(obs), 1)
    start = torch.randn_like(action)
    return F.mse_loss(net((1 - t) * start + t * action, t, obs), action - start)


def ddpm_loss(net, obs, action):
    t = torch.rand(len(obs), 1)
    alpha = torch.cos(t * 1.5)
    noise = torch.randn_like(action)
    noisy = alpha * action + (1 - alpha**2).sqrt() * noise
    return F.mse_loss(net(noisy, t, obs), noise)


def run_training(net, optimizer, loss_fn, name):
    scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, STEPS)
    for step in range(STEPS):
        loss = loss_fn(net, *demonstrations())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        scheduler.step()
        if step % 20 == 0:
            print(f"{name} step {step} loss {loss.item():.4f}")


if __name__ == "__main__":
    torch.manual_seed(12)
    velocity_net = ConditionalNet()
    fp_optimizer = torch.optim.AdamW(velocity_net.parameters(), lr=1e-3, weight_decay=1e-6)
    run_training(velocity_net, fp_optimizer, flow_matching_loss, "flow")

    noise_pred_net = ConditionalNet()
    dp_optimizer = torch.optim.AdamW(noise_pred_net.parameters(), lr=1e-3, weight_decay=1e-6)
    run_training(noise_pred_net, dp_optimizer, ddpm_loss, "diffusion")
