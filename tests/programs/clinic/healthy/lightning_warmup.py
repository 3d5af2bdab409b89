import lightning as L
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


class ResidualMLP(nn.Module):
    def __init__(self, inputs, width, depth, classes):
        super().__init__()
        self.enter = nn.Linear(inputs, width)
        self.blocks = nn.ModuleList(
            nn.Sequential(nn.LayerNorm(width), nn.Linear(width, width), nn.GELU())
            for _ in range(depth)
        )
        self.leave = nn.Linear(width, classes)

    def forward(self, x):
        x = self.enter(x)
        for block in self.blocks:
            x = x + block(x)
        return self.leave(x)


class Classification(L.LightningModule):
    def __init__(self, lr=2e-3, warmup=40):
        super().__init__()
        self.save_hyperparameters()
        self.net = ResidualMLP(12, 32, 2, 3)

    def training_step(self, batch, index):
        x, y = batch
        loss = F.cross_entropy(self.net(x), y)
        self.log("loss", loss, prog_bar=False)
        return loss

    def validation_step(self, batch, index):
        x, y = batch
        self.log("valid", F.cross_entropy(self.net(x), y))

    def configure_optimizers(self):
        optimizer = torch.optim.AdamW(self.net.parameters(), lr=self.hparams.lr)
        schedule = torch.optim.lr_scheduler.LinearLR(
            optimizer, start_factor=1e-3, total_iters=self.hparams.warmup
        )
        return {
            "optimizer": optimizer,
            "lr_scheduler": {"scheduler": schedule, "interval": "step"},
        }


def loaders():
    generator = torch.Generator().manual_seed(2)
    centres = torch.randn(3, 12, generator=generator)
    y = torch.randint(0, 3, (1200,), generator=generator)
    x = centres[y] + torch.randn(1200, 12, generator=generator)
    train, valid = TensorDataset(x[:960], y[:960]), TensorDataset(x[960:], y[960:])
    return DataLoader(train, batch_size=32, shuffle=True), DataLoader(valid, batch_size=120)


def main():
    L.seed_everything(24)
    train, valid = loaders()
    trainer = L.Trainer(
        max_epochs=4, accelerator="cpu", logger=False, enable_checkpointing=False,
        enable_progress_bar=False, enable_model_summary=False, gradient_clip_val=1.0,
    )
    trainer.fit(Classification(), train, valid)
    print({name: round(value.item(), 4) for name, value in trainer.callback_metrics.items()})


if __name__ == "__main__":
    main()
