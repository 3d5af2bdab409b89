import torch
import torch.nn.functional as F
from torch import nn


class Features(nn.Module):
    def __init__(self):
        super().__init__()
        self.convs = nn.ModuleList([nn.Conv2d(3, 12, 3, padding=1), nn.Conv2d(12, 24, 3, padding=1)])
        self.requires_grad_(False)

    def forward(self, x):
        out = []
        for conv in self.convs:
            x = F.avg_pool2d(F.relu(conv(x)), 2)
            out.append(x)
        return out


def gram(x):
    flat = x.flatten(2)
    return flat @ flat.transpose(1, 2) / flat.size(2)


def main():
    torch.manual_seed(13)
    net = Features().eval()
    content, style = torch.rand(1, 3, 16, 16), torch.rand(1, 3, 16, 16)
    with torch.no_grad():
        content_features = net(content)[-1]
        style_grams = [gram(f) for f in net(style)]
    image = content.clone().requires_grad_(True)
    optimizer = torch.optim.LBFGS([image], max_iter=4)
    losses = []

    def closure():
        optimizer.zero_grad()
        features = net(image)
        content_loss = F.mse_loss(features[-1], content_features)
        style_loss = sum(F.mse_loss(gram(f), g) for f, g in zip(features, style_grams))
        loss = content_loss + 50 * style_loss
        loss.backward()
        losses.append(loss.item())
        return loss

    for _ in range(15):
        optimizer.step(closure)
        with torch.no_grad():
            image.clamp_(0, 1)
    print(losses[0], losses[-1])


if __name__ == "__main__":
    main()
