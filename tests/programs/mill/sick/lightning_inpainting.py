import argparse

import torch
import torch.nn.functional as F
from lightning.pytorch import LightningModule, Trainer, seed_everything
from torch import nn
from torch.utils.data import DataLoader, Dataset


class Blobs(Dataset):
    def __init__(self, count, size, seed):
        generator = torch.Generator().manual_seed(seed)
        centres = torch.rand(count, 2, 1, 1, generator=generator) * size
        grid = torch.stack(torch.meshgrid(torch.arange(size), torch.arange(size), indexing="ij"))
        distance = (grid - centres).pow(2).sum(1, keepdim=True)
        self.images = torch.exp(-distance / 8) * 2 - 1

    def __len__(self):
        return len(self.images)

    def __getitem__(self, index):
        return self.images[index]


class Filler(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.net = nn.Sequential(
            nn.Conv2d(2, width, 3, padding=1),
            nn.SiLU(),
            nn.Conv2d(width, width, 3, padding=1),
            nn.SiLU(),
            nn.Conv2d(width, 1, 3, padding=1),
            nn.Tanh(),
        )

    def forward(self, images, mask):
        return self.net(torch.cat([images * mask, mask], dim=1))


class Judge(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.features = nn.Sequential(
            nn.Conv2d(1, width, 4, 2, 1),
            nn.LeakyReLU(0.2),
            nn.Conv2d(width, 2 * width, 4, 2, 1),
            nn.LeakyReLU(0.2),
        )
        self.score = nn.Linear(2 * width, 1)

    def forward(self, images):
        return self.score(self.features(images).mean((2, 3)))


class Inpainting(LightningModule):
    def __init__(self, width=12, lr=1e-3, adversarial=0.05, clip=1.0):
        super().__init__()
        self.save_hyperparameters()
        self.automatic_optimization = False
        self.filler = Filler(width)
        self.judge = Judge(width)

    def draw_mask(self, images):
        mask = torch.ones_like(images)
        corner = torch.randint(0, images.shape[-1] - 5, (2,)).tolist()
        mask[..., corner[0] : corner[0] + 5, corner[1] : corner[1] + 5] = 0
        return mask

    def update(self, optimizer, loss):
        self.manual_backward(loss)
        self.clip_gradients(optimizer, self.hparams.clip, "norm")
        optimizer.step()
        optimizer.zero_grad()

    def training_step(self, images, batch_idx):
        fill_optimizer, judge_optimizer = self.optimizers()
        mask = self.draw_mask(images)
        filled = self.filler(images, mask)
        score = self.judge(filled)
        fooled = F.binary_cross_entropy_with_logits(score, torch.ones_like(score))
        rebuilt = F.l1_loss(filled * (1 - mask), images * (1 - mask))
        loss = rebuilt + self.hparams.adversarial * fooled
        self.update(fill_optimizer, loss)

        real, fake = self.judge(images), self.judge(filled.detach())
        judged = F.softplus(-real).mean() + F.softplus(fake).mean()
        self.update(judge_optimizer, judged)
        self.log_dict({"rebuilt": rebuilt, "judged": judged}, prog_bar=False)

    def configure_optimizers(self):
        rate = self.hparams.lr
        fill = torch.optim.Adam(self.filler.parameters(), lr=rate, betas=(0.5, 0.99))
        judge = torch.optim.Adam(self.judge.parameters(), lr=rate, betas=(0.5, 0.99))
        return fill, judge


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument("--width", type=int, default=12)
    args = parser.parse_args()
    seed_everything(3, verbose=False)
    loader = DataLoader(Blobs(96, 16, 0), batch_size=8, shuffle=True)
    trainer = Trainer(
        max_epochs=args.epochs,
        accelerator="cpu",
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
    )
    trainer.fit(Inpainting(args.width), loader)
    print({name: value.item() for name, value in trainer.callback_metrics.items()})


if __name__ == "__main__":
    main()
