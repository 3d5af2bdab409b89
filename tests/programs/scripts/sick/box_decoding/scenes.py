import torch


def scenes(n, size=16):
    images = 0.1 * torch.randn(n, 1, size, size)
    labels = torch.randint(0, 3, (n,))
    corner = torch.randint(0, 8, (n, 2))
    extent = torch.randint(4, 8, (n, 2))
    for i in range(n):
        (x, y), (w, h) = corner[i].tolist(), extent[i].tolist()
        images[i, 0, y : y + h, x : x + w] += 0.5 + 0.5 * labels[i]
    return images, torch.cat([corner, corner + extent], 1).float(), labels
