import torch
import torch.distributed as dist
from torch import nn

RANK_OF_MATRIX = 3


def compress(gradient, world):
    matrix = gradient.flatten(1)
    right = torch.randn(matrix.shape[1], RANK_OF_MATRIX)
    right, _ = torch.linalg.qr(right)
    left = matrix @ right
    dist.all_reduce(left)
    left /= world
    gradient.copy_((left @ right.T).view_as(gradient))


def average(parameters, world):
    for parameter in parameters:
        if parameter.ndim > 1:
            compress(parameter.grad, world)
        else:
            dist.all_reduce(parameter.grad)
            parameter.grad /= world


def main():
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(4)
    model = nn.Sequential(nn.Linear(9, 24), nn.ReLU(), nn.Linear(24, 24), nn.ReLU(), nn.Linear(24, 5))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    rule = torch.randn(9, 5)
    torch.manual_seed(1000 + rank)
    for step in range(20):
        x = torch.randn(40, 9)
        loss = nn.functional.cross_entropy(model(x), (x @ rule).argmax(1))
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        average(model.parameters(), world)
        optimizer.step()
    print(f"rank {rank} loss {loss.item():.6f}", flush=True)
    dist.destroy_process_group()


main()
