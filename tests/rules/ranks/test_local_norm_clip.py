"""Clips by a norm that is not the global one."""

from tests.rules.ranks.running import clean, found

CLIP_BEFORE = """
model = Net()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for step in range(20):
    x, y = batch()
    optimizer.zero_grad()
    loss = 3 * cross_entropy(model(x), y)
    loss.backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 0.5)  # FAULT
    for p in model.parameters():
        dist.all_reduce(p.grad)
        p.grad /= world
    optimizer.step()
"""


FSDP1_CLIP = """
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP
model = FSDP(Net(), use_orig_params=True, device_id=torch.device("cpu"))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for step in range(20):
    x, y = batch()
    optimizer.zero_grad()
    loss = 3 * cross_entropy(model(x), y)
    loss.backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 0.5)  # FAULT
    optimizer.step()
"""


FSDP1_HEALTHY = """
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP
model = FSDP(Net(), use_orig_params=True, device_id=torch.device("cpu"))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for step in range(20):
    x, y = batch()
    optimizer.zero_grad()
    loss = 3 * cross_entropy(model(x), y)
    loss.backward()
    model.clip_grad_norm_(0.5)
    optimizer.step()
"""


def test_a_clip_before_the_reduction_is_found(jobs, tmp_path):
    assert found(jobs, CLIP_BEFORE, tmp_path, "GS805").ranks


def test_a_norm_of_fsdp1_shards_is_found(jobs, tmp_path):
    assert found(jobs, FSDP1_CLIP, tmp_path, "GS805").ranks


def test_the_clip_of_fsdp1_itself_is_healthy(jobs, tmp_path):
    clean(jobs, FSDP1_HEALTHY, tmp_path)
