import lightning as L
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


class CycleModule(L.LightningModule):
    def __init__(self, width=24, critic_steps=2, lr=1e-3, penalty=1.0, accumulate=2):
        super().__init__()
        self.save_hyperparameters()
        self.automatic_optimization = False
        self.generator = nn.Sequential(nn.Linear(3, width), nn.SiLU(), nn.Linear(width, 2))
        self.critic = nn.Sequential(nn.Linear(2, width), nn.SiLU(), nn.Linear(width, 1))

    def fake(self, real):
        return self.generator(torch.randn(len(real), 3, device=real.device))

    def gradient_penalty(self, real, fake):
        share = torch.rand(len(real), 1)
        mixed = (share * real + (1 - share) * fake).requires_grad_()
        (gradient,) = torch.autograd.grad(self.critic(mixed).sum(), mixed, create_graph=True)
        return (gradient.norm(dim=1) - 1).pow(2).mean()

    def critic_loss(self, real):
        fake = self.fake(real).detach()
        distance = self.critic(fake).mean() - self.critic(real).mean()
        return distance + self.hparams.penalty * self.gradient_penalty(real, fake)

    def training_step(self, batch, batch_idx):
        (real,) = batch
        g_optimizer, c_optimizer = self.optimizers()
        g_schedule, c_schedule = self.lr_schedulers()

        self.toggle_optimizer(c_optimizer)
        for _ in range(self.hparams.critic_steps):
            loss = self.critic_loss(real)
            c_optimizer.zero_grad()
            self.manual_backward(loss)
            c_optimizer.step()
        self.untoggle_optimizer(c_optimizer)

        self.toggle_optimizer(g_optimizer)
        g_loss = -self.critic(self.fake(real)).mean() / self.hparams.accumulate
        self.manual_backward(g_loss)
        if (batch_idx + 1) % self.hparams.accumulate == 0:
            g_optimizer.step()
            g_optimizer.zero_grad()
        self.untoggle_optimizer(g_optimizer)

        if self.trainer.is_last_batch:
            g_schedule.step()
            c_schedule.step()
        self.log_dict({"critic": loss, "generator": g_loss})

    def configure_optimizers(self):
        settings = {"lr": self.hparams.lr, "betas": (0.0, 0.9)}
        optimizers = [
            torch.optim.Adam(self.generator.parameters(), **settings),
            torch.optim.Adam(self.critic.parameters(), **settings),
        ]
        return optimizers, [torch.optim.lr_scheduler.ExponentialLR(o, 0.9) for o in optimizers]


def moons(count):
    angle = 3.1416 * torch.rand(count)
    points = torch.stack([angle.cos(), angle.sin()], dim=1)
    return TensorDataset(points + 0.05 * torch.randn(count, 2))


def main():
    L.seed_everything(54, verbose=False)
    trainer = L.Trainer(
        max_epochs=3,
        accelerator="cpu",
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
    )
    trainer.fit(CycleModule(), DataLoader(moons(256), batch_size=32, shuffle=True))
    print({name: value.item() for name, value in trainer.callback_metrics.items()})


if __name__ == "__main__":
    main()
