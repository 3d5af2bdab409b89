"""Training loops within modes, threads and processes of all kinds."""

import threading
from concurrent.futures import ThreadPoolExecutor

import torch
from torch.nn.functional import cross_entropy
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.flop_counter import FlopCounterMode

from tests.step_capture.models_to_train import features, mlp


def train(model, steps=6, optimizer=None, batch=features, loss_of=None):
    optimizer = optimizer or torch.optim.SGD(model.parameters(), lr=0.1)
    losses = []
    for _ in range(steps):
        x, y = batch()
        loss = cross_entropy(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.detach())
    return model, losses


class Plain(TorchFunctionMode):
    def __torch_function__(self, func, types, args=(), kwargs=None):
        return func(*args, **(kwargs or {}))


class Logged(TorchFunctionMode):
    def __init__(self):
        super().__init__()
        self.seen = []

    def __torch_function__(self, func, types, args=(), kwargs=None):
        self.seen.append(getattr(func, "__name__", ""))
        return func(*args, **(kwargs or {}))


class Dispatched(TorchDispatchMode):
    def __init__(self):
        super().__init__()
        self.seen = []

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        self.seen.append(str(func))
        return func(*args, **(kwargs or {}))


def as_tensor(names):
    return torch.tensor(list(" ".join(names).encode()))


def opened_before():
    with torch.device("cpu"):
        return train(mlp())


def opened_around_each_step():
    model, losses = mlp(), []
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(6):
        with torch.device("cpu"), Plain():
            losses += train(model, 1, optimizer)[1]
    return model, losses


def across_steps():
    model, losses = mlp(), []
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    modes = []
    for step in range(8):
        modes.append(Plain())
        modes[-1].__enter__()
        losses += train(model, 1, optimizer)[1]
        if step % 3 == 2:
            while modes:
                modes.pop().__exit__(None, None, None)
    while modes:
        modes.pop().__exit__(None, None, None)
    return model, losses


def default_device():
    model, losses = mlp(), []
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for step in range(6):
        torch.set_default_device("cpu" if step % 2 else None)
        losses += train(model, 1, optimizer)[1]
    torch.set_default_device(None)
    return model, losses


def logged_functions():
    with Logged() as mode:
        model, losses = train(mlp())
    return model, [*losses, as_tensor(mode.seen)]


def logged_operations():
    with Dispatched() as mode:
        model, losses = train(mlp())
    return model, [*losses, as_tensor(mode.seen)]


def counted_operations():
    with FlopCounterMode(display=False) as mode:
        model, losses = train(mlp())
    return model, [*losses, torch.tensor(mode.get_total_flops())]


def threads_of_forwards():
    model, losses = mlp(0.0), []
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with ThreadPoolExecutor(2) as pool:
        for _ in range(6):
            x, y = features()
            loss = cross_entropy(torch.cat(list(pool.map(model, x.chunk(2)))), y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses.append(loss.detach())
    return model, losses


def in_thread(work):
    found = []
    thread = threading.Thread(target=lambda: found.append(work()))
    thread.start()
    thread.join()
    return found[0]


def in_another_thread():
    return in_thread(lambda: train(mlp()))


def by_turns_in_another_thread():
    model, losses = mlp(), []
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(3):
        losses += in_thread(lambda: train(model, 2, optimizer)[1])
        losses += train(model, 2, optimizer)[1]
    return model, losses


def evaluated_beside():
    model, is_over = mlp(0.0), threading.Event()

    def evaluate():
        while not is_over.is_set():
            with torch.no_grad():
                model(torch.zeros(4, 8))

    thread = threading.Thread(target=evaluate)
    thread.start()
    try:
        return train(model)
    finally:
        is_over.set()
        thread.join()


def loaded_by_workers():
    data = TensorDataset(torch.randn(48, 8), torch.randint(0, 4, (48,)))
    batches = iter(DataLoader(data, 8, num_workers=2, multiprocessing_context="fork"))
    return train(mlp(), 6, batch=lambda: next(batches))


def traced():
    model = mlp(0.0)
    losses = train(model, 2)[1]
    torch.jit.trace(model, torch.randn(2, 8))
    return model, losses + train(model, 4)[1]


def evaluated_in_inference_mode():
    model, losses = mlp(), []
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(6):
        losses += train(model, 1, optimizer)[1]
        with torch.inference_mode():
            losses.append(model(torch.ones(2, 8)).add_(1).sum().clone())
    return model, losses


def saved_elsewhere():
    with torch.autograd.graph.save_on_cpu():
        return train(mlp())


SURROUNDED = {
    loop.__name__: loop
    for loop in (
        opened_before,
        opened_around_each_step,
        across_steps,
        default_device,
        logged_functions,
        logged_operations,
        counted_operations,
        threads_of_forwards,
        in_another_thread,
        by_turns_in_another_thread,
        evaluated_beside,
        loaded_by_workers,
        traced,
        evaluated_in_inference_mode,
        saved_elsewhere,
    )
}
