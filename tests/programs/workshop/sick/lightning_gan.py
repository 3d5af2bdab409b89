import logging
import warnings

import lightning as L
import torch
import torch.nn as nn
import torch.nn.functional as F

warnings.filterwarnings("ignore")
logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)


class GAN(L.LightningModule):
    def __init__(self, latent=4):
        super().__init__()
        self.automatic_optimization = False
        self.latent = latent
        self.generator = nn.Sequential(nn.Linear(latent, 32), nn.LeakyReLU(0.2), nn.Linear(32, 2))
        self.discriminator = nn.Sequential(nn.Linear(2, 32), nn.LeakyReLU(0.2), nn.Linear(32, 1))

    def adversarial(self, x, real):
        pred = self.discriminator(x)
        return F.binary_cross_entropy_with_logits(pred, torch.full_like(pred, float(real)))

    def training_step(self, batch, _):
        (real,) = batch
        opt_g, opt_d = self.optimizers()
        z = torch.randn(len(real), self.latent)

        g_loss = self.adversarial(self.generator(z), True)
        opt_g.zero_grad()
        self.manual_backward(g_loss)
        opt_g.step()

        fake = self.generator(z).detach()
        d_loss = (self.adversarial(real, True) + self.adversarial(fake, False)) / 2
        self.manual_backward(d_loss)
        opt_d.step()
        opt_d.zero_grad()

    def configure_optimizers(self):
        g = torch.optim.Adam(self.generator.parameters(), lr=2e-3, betas=(0.5, 0.9))
        d = torch.optim.Adam(self.discriminator.parameters(), lr=2e-3, betas=(0.5, 0.9))
        return [g, d], []


if __name__ == "__main__":
    L.seed_everything(3)
    angle = torch.rand(512) * 2 * torch.pi
    ring = torch.stack([angle.cos(), angle.sin()], 1) + 0.05 * torch.randn(512, 2)
    loader = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(ring), batch_size=32, shuffle=True)
    trainer = L.Trainer(
        max_epochs=3, accelerator="cpu", logger=False, enable_checkpointing=False,
        enable_progress_bar=False, enable_model_summary=False,
    )
    trainer.fit(GAN(), loader)
