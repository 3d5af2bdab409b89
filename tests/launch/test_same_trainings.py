"""Trainings that start processes and threads, copy models, or end in odd ways, are the same."""

import re
from textwrap import dedent

import pytest

from tests.nightly import some_on_push

TRAINING = """
import atexit, copy, hashlib, io, os, pickle, random, signal, sys, threading, time
import multiprocessing
import torch
from torch import nn
from torch.nn.functional import cross_entropy

torch.set_num_threads(1)

def new(seed=0):
    torch.manual_seed(seed)
    random.seed(seed)
    model = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Dropout(0.1), nn.Linear(16, 4))
    return model, torch.optim.AdamW(model.parameters(), lr=0.01)

def told(model, loss):
    found = hashlib.sha256(float(loss.detach()).hex().encode())
    for one in model.parameters():
        for tensor in (one, one.grad):
            found.update(b"" if tensor is None else tensor.detach().numpy().tobytes())
    found.update(torch.get_rng_state().numpy().tobytes())
    return found.hexdigest()[:16]

def step(model, optimizer, x=None):
    x = torch.randn(4, 8) if x is None else x
    optimizer.zero_grad()
    loss = cross_entropy(model(x), x.argmax(1) % 4)
    loss.backward()
    optimizer.step()
    return told(model, loss)

def train(seed=0, steps=6):
    model, optimizer = new(seed)
    return [step(model, optimizer) for _ in range(steps)]
"""
"""What every script begins with."""

SCRIPTS = {
    "a pool that is forked amid a training": """
        model, optimizer = new()
        print(step(model, optimizer))
        with multiprocessing.get_context("fork").Pool(2) as pool:
            print(pool.map(train, [1, 2]))
            print(step(model, optimizer))
        print(step(model, optimizer), random.random())
    """,
    "a forked child that trains its parent's model on": """
        model, optimizer = new()
        print([step(model, optimizer) for _ in range(3)], flush=True)
        if os.fork() == 0:
            print("child", [step(model, optimizer) for _ in range(3)])
            sys.exit(4)
        print(os.waitstatus_to_exitcode(os.wait()[1]))
        print("parent", [step(model, optimizer) for _ in range(3)])
    """,
    "workers that augment": """
        class Data(torch.utils.data.Dataset):
            def __len__(self):
                return 8
            def __getitem__(self, index):
                return torch.randn(8) + index + random.random()
        model, optimizer = new()
        for kept in (False, True):
            loader = torch.utils.data.DataLoader(
                Data(), batch_size=4, num_workers=2, shuffle=True, persistent_workers=kept
            )
            for epoch in range(2):
                print([step(model, optimizer, x) for x in loader])
    """,
    "threads that train one model each": """
        found = {}
        def work(name):
            draws = torch.Generator().manual_seed(name)
            model = nn.Linear(8, 4)
            nn.init.normal_(model.weight, generator=draws)
            nn.init.zeros_(model.bias)
            optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
            for _ in range(20):
                x = torch.randn(4, 8, generator=draws)
                optimizer.zero_grad()
                cross_entropy(model(x), x.argmax(1) % 4).backward()
                optimizer.step()
            found[name] = [one.detach().double().sum().item().hex() for one in model.parameters()]
        threads = [threading.Thread(target=work, args=(name,)) for name in range(2)]
        for one in threads:
            one.start()
        for one in threads:
            one.join()
        print(sorted(found.items()))
    """,
    "copies of a model in training": """
        model, optimizer = new()
        print([step(model, optimizer) for _ in range(3)])
        twin = copy.deepcopy((model, optimizer))
        again = pickle.loads(pickle.dumps((model, optimizer)))
        held = io.BytesIO()
        torch.save(model, held)
        print(hashlib.sha256(held.getvalue()).hexdigest())
        held.seek(0)
        read = torch.load(held, weights_only=False)
        state = torch.get_rng_state()
        for one in (twin, again, (read, torch.optim.SGD(read.parameters(), lr=0.1))):
            torch.set_rng_state(state)
            print([step(*one) for _ in range(3)], sorted(vars(one[0])), sorted(vars(one[1])))
    """,
    "gradients of each example and along a direction": """
        from torch.func import functional_call, grad, jvp, vmap
        model, optimizer = new()
        model.eval()
        def loss_of(weights, x):
            return functional_call(model, weights, (x[None],)).logsumexp(1).sum()
        for _ in range(4):
            x = torch.randn(4, 8)
            weights = {name: one.detach() for name, one in model.named_parameters()}
            each = vmap(grad(loss_of), (None, 0))(weights, x)
            _, slope = jvp(lambda w: loss_of(w, x[0]), (weights,), (each_mean := {
                name: one.mean(0) for name, one in each.items()
            },))
            for name, one in model.named_parameters():
                one.grad = each_mean[name].clone()
            optimizer.step()
            print(told(model, slope))
    """,
    "buffers that stay where they are": """
        model, optimizer = new()
        held, loss = torch.zeros(4, 8), torch.zeros(())
        for _ in range(4):
            held.copy_(torch.randn(4, 8))
            optimizer.zero_grad(set_to_none=False)
            one = model(held).logsumexp(1).mean()
            one.backward()
            loss.copy_(one.detach())
            optimizer.step()
            print(told(model, loss), [p.grad.data_ptr() == q for p, q in zip(
                model.parameters(), where)] if _ else None)
            where = [p.grad.data_ptr() for p in model.parameters()]
    """,
    "a class of tensors that counts its calls": """
        class Counted(torch.Tensor):
            calls = []
            @classmethod
            def __torch_function__(cls, func, types, args=(), kwargs=None):
                cls.calls.append(getattr(func, "__name__", str(func)))
                return super().__torch_function__(func, types, args, kwargs)
        model, optimizer = new()
        for _ in range(5):
            print(step(model, optimizer, torch.randn(4, 8).as_subclass(Counted)))
        print(Counted.calls)
    """,
    "normalised weights": """
        model = nn.Sequential(
            nn.utils.parametrizations.weight_norm(nn.Linear(8, 16)), nn.Tanh(),
            nn.utils.parametrizations.spectral_norm(nn.Linear(16, 16)), nn.Tanh(),
            nn.utils.parametrizations.orthogonal(nn.Linear(16, 4)),
        )
        optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
        print([step(model, optimizer) for _ in range(5)])
        nn.utils.parametrize.remove_parametrizations(model[0], "weight")
        optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
        print([step(model, optimizer) for _ in range(3)])
    """,
    "an exit amid a step": """
        atexit.register(print, "first registered")
        model, optimizer = new()
        atexit.register(lambda: print("last registered", step(model, optimizer)))
        print(step(model, optimizer))
        model(torch.randn(2, 8)).sum().backward()
        sys.exit("it is enough")
    """,
    "an exit without an end": """
        atexit.register(print, "never")
        model, optimizer = new()
        print([step(model, optimizer) for _ in range(3)], flush=True)
        os._exit(7)
    """,
    "an exception amid a backward": """
        model, optimizer = new()
        def hook(gradient):
            raise RuntimeError("by a hook")
        print([step(model, optimizer) for _ in range(3)])
        model[0].weight.register_hook(hook)
        step(model, optimizer)
    """,
    "a signal that is handled amid a step": """
        model, optimizer = new()
        def handle(number, frame):
            with torch.no_grad():
                print("handled", number, told(model, model(torch.ones(1, 8)).sum()))
        signal.signal(signal.SIGUSR1, handle)
        for _ in range(4):
            loss = model(torch.randn(4, 8)).logsumexp(1).mean()
            os.kill(os.getpid(), signal.SIGUSR1)
            loss.backward()
            os.kill(os.getpid(), signal.SIGUSR1)
            optimizer.step()
            optimizer.zero_grad()
        signal.signal(signal.SIGTERM, lambda *_: sys.exit(9))
        os.kill(os.getpid(), signal.SIGTERM)
        print("never")
    """,
    "an end by a signal": """
        model, optimizer = new()
        print([step(model, optimizer) for _ in range(3)], flush=True)
        os.kill(os.getpid(), signal.SIGKILL)
    """,
    "a script that starts itself again": """
        print(sys.argv[1:], train(), flush=True)
        if len(sys.argv) < 2:
            os.execv(sys.executable, [sys.executable, __file__, "again"])
    """,
}

FROM_ANEW = {
    "spawned workers": """
        class Data(torch.utils.data.Dataset):
            def __len__(self):
                return 8
            def __getitem__(self, index):
                return torch.randn(8) + index
        if __name__ == "__main__":
            model, optimizer = new()
            loader = torch.utils.data.DataLoader(
                Data(), batch_size=4, num_workers=1, multiprocessing_context="spawn"
            )
            print([step(model, optimizer, x) for x in loader])
    """,
    "a pool that is spawned": """
        if __name__ == "__main__":
            with multiprocessing.get_context("spawn").Pool(1) as pool:
                print(train(), pool.map(train, [1, 2]), train(3))
    """,
    "ranks that are spawned": """
        import torch.distributed as dist
        from torch.nn.parallel import DistributedDataParallel
        def work(rank, folder):
            dist.init_process_group(
                "gloo", init_method=f"file://{folder}/store", rank=rank, world_size=2
            )
            model, _ = new(rank)
            model = DistributedDataParallel(model)
            optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
            told = [step(model, optimizer) for _ in range(5)]
            dist.destroy_process_group()
            with open(f"{folder}/told{rank}", "w") as file:
                print(told, file=file)
            sys.exit(rank and 6)
        if __name__ == "__main__":
            import tempfile
            import torch.multiprocessing as mp
            for how in ("spawn", "forkserver"):
                with tempfile.TemporaryDirectory() as folder:
                    try:
                        mp.start_processes(work, (folder,), nprocs=2, start_method=how)
                    except mp.ProcessExitedException as error:
                        print(how, error.exit_code, error.error_index)
                    print(open(f"{folder}/told0").read(), open(f"{folder}/told1").read())
    """,
    "a rank that raises": """
        def work(rank):
            if rank == 0:
                time.sleep(60)
            print(train(), flush=True)
            raise ValueError("in a rank")
        if __name__ == "__main__":
            import torch.multiprocessing as mp
            try:
                mp.spawn(work, nprocs=2)
            except mp.ProcessRaisedException as error:
                print(error.error_index, str(error).splitlines()[-1])
                sys.exit(3)
    """,
}

OTHERS = re.compile(r"gradscope: |train\.py:\d+:\d+: \w+: GS\d+ |W\d+ .*Terminating process")
"""Lines of standard error that may differ: what gradscope adds, and which rank outlived another."""


@pytest.mark.parametrize(
    ("name", "is_apart"),
    [
        *some_on_push([(name, False) for name in SCRIPTS], 3),
        *(pytest.param(name, True, marks=pytest.mark.nightly) for name in FROM_ANEW),
    ],
)
def test_a_training_is_the_same_to_the_bit(name, is_apart, tmp_path, gradscope_in):
    script = tmp_path / "train.py"
    script.write_text(TRAINING + dedent((SCRIPTS | FROM_ANEW)[name]))
    arguments = ("run", "-q", "--save", "one.gradscope", "-o", "report.json", "train.py")
    plain = gradscope_in(tmp_path, *arguments, is_apart=is_apart, GRADSCOPE="off")
    assert not (tmp_path / "one.gradscope").exists()
    watched = gradscope_in(tmp_path, *arguments, is_apart=is_apart)
    assert len(plain.stdout) > 40, plain.stderr
    assert watched.stdout == plain.stdout
    assert watched.returncode == plain.returncode
    told, expected = (
        [one for one in done.stderr.splitlines() if not OTHERS.match(one)]
        for done in (watched, plain)
    )
    assert told == expected
