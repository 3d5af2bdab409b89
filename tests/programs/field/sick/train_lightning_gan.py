import lightning as L
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


class GAN(L.LightningModule):
    def __init__(self, latent=4):
        super().__init__()
        self.automatic_optimization = False
        self.latent = latent
        self.generator = nn.Sequential(nn.Linear(latent, 32), nn.ReLU(), nn.Linear(32, 2))
        self.discriminator = nn.Sequential(nn.Linear(2, 32), nn.LeakyReLU(0.2), nn.Linear(32, 1))

    def configure_optimizers(self):
        opt_g = torch.optim.Adam(self.generator.parameters(), lr=1e-3, betas=(0.5, 0.9))
        opt_d = torch.optim.Adam(self.discriminator.parameters(), lr=1e-3, betas=(0.5, 0.9))
        return opt_g, opt_d

    def score(self, x, real):
        out = self.discriminator(x)
        return F.binary_cross_entropy_with_logits(out, torch.full_like(out, float(real)))

    def training_step(self, batch, batch_idx):
        (real,) = batch
        opt_g, opt_d = self.optimizers()
        z = torch.randn(len(real), self.latent)

        self.toggle_optimizer(opt_g)
        g_loss = self.score(self.generator(z), True)
        self.manual_backward(g_loss)
        opt_g.step()
        self.untoggle_optimizer(opt_g)

        self.toggle_optimizer(opt_d)
        d_loss = (self.score(real, True) + self.score(self.generator(z).detach(), False)) / 2
        opt_d.zero_grad()
        self.manual_backward(d_loss)
        opt_d.step()
        self.untoggle_optimizer(opt_d)
        self.log_dict({"g_loss": g_loss, "d_loss": d_loss})


if __name__ == "__main__":
    L.seed_everything(3, verbose=False)
    theta = torch.rand(512) * 6.2832
    data = torch.stack([theta.cos(), theta.sin()], 1) + 0.05 * torch.randn(512, 2)
    loader = DataLoader(TensorDataset(data), batch_size=32, shuffle=True)
    trainer = L.Trainer(max_epochs=5, accelerator="cpu", logger=False, enable_checkpointing=False, enable_progress_bar=False, enable_model_summary=False)
    model = GAN()
    trainer.fit(model, loader)
    print({k: round(v.item(), 3) for k, v in trainer.callback_metrics.items()})
