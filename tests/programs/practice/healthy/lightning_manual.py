import lightning as L
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


class AutoencoderWithProbe(L.LightningModule):
    def __init__(self, inputs=16, latent=4, classes=3):
        super().__init__()
        self.automatic_optimization = False
        self.encoder = nn.Sequential(nn.Linear(inputs, 32), nn.ReLU(), nn.Linear(32, latent))
        self.decoder = nn.Sequential(nn.Linear(latent, 32), nn.ReLU(), nn.Linear(32, inputs))
        self.probe = nn.Linear(latent, classes)

    def training_step(self, batch, batch_idx):
        x, y = batch
        opt_ae, opt_probe = self.optimizers()

        z = self.encoder(x)
        reconstruction = F.mse_loss(self.decoder(z), x)
        opt_ae.zero_grad()
        self.manual_backward(reconstruction)
        opt_ae.step()

        probe_loss = F.cross_entropy(self.probe(z.detach()), y)
        opt_probe.zero_grad()
        self.manual_backward(probe_loss)
        opt_probe.step()

    def configure_optimizers(self):
        ae = torch.optim.Adam([*self.encoder.parameters(), *self.decoder.parameters()], lr=2e-3)
        return ae, torch.optim.SGD(self.probe.parameters(), lr=0.05)


def main():
    L.seed_everything(3, verbose=False)
    y = torch.randint(0, 3, (320,))
    x = torch.randn(3, 16)[y] * 2 + torch.randn(320, 16)
    trainer = L.Trainer(
        max_epochs=4, accelerator="cpu", logger=False, enable_checkpointing=False, enable_progress_bar=False,
        enable_model_summary=False,
    )
    module = AutoencoderWithProbe()
    trainer.fit(module, DataLoader(TensorDataset(x, y), batch_size=32, shuffle=True))
    with torch.no_grad():
        print((module.probe(module.encoder(x)).argmax(1) == y).float().mean().item())


if __name__ == "__main__":
    main()
