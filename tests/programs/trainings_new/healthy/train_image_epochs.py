import torch
import torch.nn.functional as F

torch.manual_seed(1)
config = dict(lr=0.01, epochs=8, batch=16, hidden=32)
images = torch.randn(160, 1, 8, 8)
labels = (images[:, :, :4].mean((1, 2, 3)) > images[:, :, 4:].mean((1, 2, 3))).long()
model = torch.nn.Sequential(
    torch.nn.Conv2d(1, 8, 3), torch.nn.ReLU(), torch.nn.Flatten(),
    torch.nn.Linear(8 * 36, config["hidden"]), torch.nn.ReLU(), torch.nn.Linear(config["hidden"], 2),
)
opt = torch.optim.SGD(model.parameters(), lr=config["lr"], momentum=0.9)
for epoch in range(config["epochs"]):
    order = torch.randperm(len(images))
    losses = []
    for i in range(0, len(images), config["batch"]):
        opt.zero_grad()
        pick = order[i:i + config["batch"]]
        loss = F.cross_entropy(model(images[pick]), labels[pick])
        loss.backward()
        opt.step()
        losses.append(loss.item())
    print("epoch", epoch, "loss", sum(losses) / len(losses))
