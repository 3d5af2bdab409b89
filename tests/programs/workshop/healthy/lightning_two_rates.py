import logging
import warnings
import lightning as L
import torch
import torch.nn as nn
import torch.nn.functional as F

warnings.filterwarnings("ignore")
logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)


class WGAN(L.LightningModule):
    def __init__(self):
        super().__init__()
        self.automatic_optimization = False
        self.g = nn.Sequential(nn.Linear(4, 32), nn.ReLU(), nn.Linear(32, 2))
        self.d = nn.Sequential(nn.Linear(2, 32), nn.LeakyReLU(0.2), nn.Linear(32, 1))

    def penalty(self, real, fake):
        mix = torch.rand(len(real), 1)
        x = (mix * real + (1 - mix) * fake).requires_grad_(True)
        grad = torch.autograd.grad(self.d(x).sum(), x, create_graph=True)[0]
        return (grad.norm(dim=1) - 1).pow(2).mean()

    def training_step(self, batch, batch_idx):
        real = batch[0]
        og, od = self.optimizers()
        self.toggle_optimizer(od)
        fake = self.g(torch.randn(len(real), 4)).detach()
        loss_d = self.d(fake).mean() - self.d(real).mean() + 10 * self.penalty(real, fake)
        od.zero_grad()
        self.manual_backward(loss_d)
        od.step()
        self.untoggle_optimizer(od)
        if batch_idx % 3 == 2:
            self.toggle_optimizer(og)
            loss_g = -self.d(self.g(torch.randn(len(real), 4))).mean()
            og.zero_grad()
            self.manual_backward(loss_g)
            og.step()
            self.untoggle_optimizer(og)

    def configure_optimizers(self):
        return (
            torch.optim.Adam(self.g.parameters(), lr=1e-3, betas=(0.0, 0.9)),
            torch.optim.Adam(self.d.parameters(), lr=1e-3, betas=(0.0, 0.9)),
        )


L.seed_everything(0)
data = torch.randn(768, 2) * 0.3 + torch.tensor([1.0, -1.0])
loader = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(data), batch_size=32, shuffle=True)
L.Trainer(max_epochs=2, accelerator="cpu", logger=False, enable_checkpointing=False,
          enable_progress_bar=False, enable_model_summary=False).fit(WGAN(), loader)
