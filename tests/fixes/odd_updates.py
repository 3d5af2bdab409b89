"""Training scripts with wrong updates, limits or losses, and the edit a reviewer would accept."""

from tests.fixes.odd_program import HEADER, Program, adding_trainings_to
from tests.fixes.odd_trainings import START

PROGRAMS: list[Program] = []

add = adding_trainings_to(PROGRAMS, START)


def rate(name, optimizer, *added):
    text = """
    for x, y in data * 2:
        opt.zero_grad(); F.mse_loss(net(x), y).backward(); opt.step()
    """
    around = START.replace("opt = torch.optim.SGD(net.parameters(), lr=.01)", optimizer)
    add("GS108", name, text, *added, around=around)


rate("keyword", "opt = torch.optim.SGD(net.parameters(), momentum=0., lr = 30.)",
    "opt = torch.optim.SGD(net.parameters(), momentum=0., lr = 0.3)",
)  # fmt: skip
rate("positional", "from torch import optim as o; opt = o.SGD(net.parameters(), 30, )",
    "from torch import optim as o; opt = o.SGD(net.parameters(), 0.3, )",
)  # fmt: skip
rate("variable", "LR = 3e1  # rate\nopt = torch.optim.SGD(net.parameters(), LR)",
    "LR = 0.3  # rate",
)  # fmt: skip
rate("read_twice", "LR = 3e1; print(LR)\nopt = torch.optim.SGD(net.parameters(), LR)", None)
rate("computed", "opt = torch.optim.SGD(net.parameters(), lr=3 * 10)", None)
rate("options", "o = {'lr': 30.}\nopt = torch.optim.SGD(net.parameters(), **o)", None)


def limit(name, call, *added, before=""):
    text = f"""
{before}
for x, y in data * 2:
    opt.zero_grad(); (99 * F.mse_loss(net(x), y)).backward()
    {call}
    opt.step()
"""
    add("GS405", name, text, *added, around=START.replace("lr=.01", "lr=1e-4"))


limit("number", "nn.utils.clip_grad_norm_(net.parameters(), 1e-3)",
    "nn.utils.clip_grad_norm_(net.parameters(), 210)",
)  # fmt: skip
limit("keyword", "clip(net.parameters(), max_norm=.001,)  # small",
    "clip(net.parameters(), max_norm=210,)  # small",
    before="from torch.nn.utils import clip_grad_norm_ as clip",
)  # fmt: skip
limit("variable", "nn.utils.clip_grad_norm_(net.parameters(), LIMIT)", "LIMIT = 210",
    before="LIMIT = .001",
)  # fmt: skip
limit("dictionary", "nn.utils.clip_grad_norm_(net.parameters(), c['clip'])", "c = {'clip': 210}",
    before="c = {'clip': .001}",
)  # fmt: skip

ACTOR = """
for x, y in data:
    h = net[0](x).tanh()
    value, other = net[2](h), h.abs().mean()
    opt.zero_grad()
    {}
    opt.step()
"""


def twice(name, body, *added):
    add("GS502", name, ACTOR.format(body), *added)


twice(
    "two_lines",
    "F.mse_loss(value, y).backward()\n    other.backward()",
    "F.mse_loss(value, y).backward(retain_graph=True)",
)
twice("one_line", "F.mse_loss(value, y).backward(); other.backward()", None)
twice("step_between", "F.mse_loss(value, y).backward()\n    opt.step()\n    other.backward()", None)
twice("in_a_loop", "for one in (F.mse_loss(value, y), other): one.backward()", None)

add(
    "GS302", "zeroed_for_each_micro_batch",
    """
    for i in range(0, 24, 4):
        for x, y in data[i:i + 4]:
            opt.zero_grad()
            (F.mse_loss(net(x), y) / 4).backward()
        opt.step()
    """,
    "opt.zero_grad()",
)  # fmt: skip
add(
    "GS302", "zeroed_before_a_step_in_a_condition",
    """
    for i, (x, y) in enumerate(data, 1):
        opt.zero_grad()
        loss = F.mse_loss(net(x), y) / 4
        loss.backward()
        if i % 4 == 0:
            opt.step()
    """,
    "opt.zero_grad()",
)  # fmt: skip
add(
    "GS302", "zeroed_for_each_micro_batch_with_a_comment",
    """
    for i in range(0, 24, 4):
        for x, y in data[i:i + 4]:
            opt.zero_grad()  # start anew
            (F.mse_loss(net(x), y) / 4).backward()
        opt.step()
    """,
    None,
)  # fmt: skip

UNEVEN = (
    HEADER
    + """torch.manual_seed(0)
PAD = 9
net = nn.Sequential(nn.Embedding(10, 8), nn.Linear(8, 10))
opt = torch.optim.SGD(net.parameters(), lr=.1)
def sample(longest):
    x = torch.randint(0, 9, (4, longest + 1)); y = x[:, 1:].clone(); y[0, 1:] = PAD
    return x[:, :-1], y
"""
)


def uneven(name, text, *added):
    add("GS304", name, text, *added, around=UNEVEN)


uneven(
    "loss_in_a_function",
    """
    def loss_of(logits, y, how):
        \"\"\"The loss of each token.\"\"\"
        return F.cross_entropy(logits.mT, y[:, :], ignore_index=PAD, reduction=how)

    for window in [[sample(n) for n in (2, 30, 3, 20)] for _ in range(12)]:
        count = sum((y != PAD).sum() for _, y in window)
        opt.zero_grad()
        for x, y in window:
            loss = loss_of(net(x), y, how="mean") / 4
            loss.backward()
        opt.step()
    """,
    "target_count = sum((y[:, :] != PAD).sum() for x, y in window)",
    'loss = loss_of(net(x), y, how="sum") / target_count',
)  # fmt: skip
uneven(
    "loss_in_a_function_that_others_call",
    """
    def loss_of(logits, y):
        return F.cross_entropy(logits.mT, y, ignore_index=PAD)

    for _ in range(12):
        window = [sample(n) for n in (2, 30, 3, 20)]
        opt.zero_grad()
        for x, y in window:
            (loss_of(net(x), y) / 4).backward()
        opt.step()
    """,
    None,
)  # fmt: skip
uneven(
    "list_of_batches",
    """
    for _ in range(12):
        window = [sample(n) for n in (2, 30, 3, 20)]
        opt.zero_grad()
        for x, y in window:
            loss = F.cross_entropy(net(x).mT, y, ignore_index=PAD) / len(window)
            loss.backward()  # adds up
        opt.step()
    """,
    "target_count = sum((y != PAD).sum() for x, y in window)",
    "loss = F.cross_entropy(net(x).mT, y, ignore_index=PAD, "
    'reduction="sum") / target_count',
)  # fmt: skip
uneven(
    "divided_on_a_line_of_its_own",
    """
    ACCUM = 4
    for _ in range(12):
        micro = [sample(n) for n in (2, 30, 3, 20)]
        opt.zero_grad()
        for x, y in micro:
            loss = F.cross_entropy(net(x).mT, y, ignore_index=PAD)
            loss = loss / ACCUM  # mean of the window
            loss.backward()
        opt.step()
    """,
    "target_count = sum((y != PAD).sum() for x, y in micro)",
    'loss = F.cross_entropy(net(x).mT, y, ignore_index=PAD, reduction="sum")',
    "loss = loss / target_count  # mean of the window",
)  # fmt: skip
uneven(
    "module_moved_to_a_device",
    """
    criterion = nn.CrossEntropyLoss(ignore_index=PAD)
    K = 4
    for _ in range(12):
        window = [sample(n) for n in (2, 30, 3, 20)]
        for i, (x, y) in enumerate(window):
            y = y.to("cpu")
            (criterion(net(x).transpose(1, 2), y) / K).backward()
        opt.step(); opt.zero_grad()
    """,
    'criterion = nn.CrossEntropyLoss(ignore_index=PAD, reduction="sum")',
    "target_count = sum((y != PAD).sum() for i, (x, y) in enumerate(window))",
    "(criterion(net(x).transpose(1, 2), y) / target_count).backward()",
)  # fmt: skip
uneven(
    "batches_drawn_in_the_loop",
    """
    for _ in range(12):
        for n in (2, 30, 3, 20):
            x, y = sample(n)
            (F.cross_entropy(net(x).flatten(0, 1), y.flatten(), ignore_index=PAD) / 4).backward()
        opt.step(); opt.zero_grad()
    """,
    None,
)  # fmt: skip
uneven(
    "iterator_that_is_read_once",
    """
    for _ in range(12):
        window = (sample(n) for n in (2, 30, 3, 20))
        for x, y in window:
            (F.cross_entropy(net(x).flatten(0, 1), y.flatten(), ignore_index=PAD) / 4).backward()
        opt.step(); opt.zero_grad()
    """,
    None,
)  # fmt: skip
uneven(
    "targets_cut_in_the_loop",
    """
    for _ in range(12):
        window = [sample(n) for n in (2, 30, 3, 20)]
        for x, y in window:
            y = y.masked_fill(y == 3, PAD)
            (F.cross_entropy(net(x).flatten(0, 1), y.flatten(), ignore_index=PAD) / 4).backward()
        opt.step(); opt.zero_grad()
    """,
    None,
)  # fmt: skip

TINY = (
    HEADER
    + """torch.manual_seed(0)
net = nn.Sequential(nn.Linear(8, 16), nn.Tanh(), nn.Linear(16, 1))
opt = torch.optim.SGD(net.parameters(), lr=.1)
"""
)


def tiny(name, text, *added):
    add("GS604", name, text, *added, around=TINY)


tiny(
    "scaler_before_the_loop",
    """
    for _ in range(12):
        x = torch.randn(64, 8)
        with torch.autocast("cpu", torch.float16): y = net(x) * 1e-4
        loss = (y.float() - 1e-4 * x.sum(1, keepdim=True)).square().mean()
        opt.zero_grad(); loss.backward(); opt.step()
    """,
    'scaler = torch.amp.GradScaler("cpu")',
    "opt.zero_grad(); scaler.scale(loss).backward(); scaler.step(opt); scaler.update()",
)  # fmt: skip
tiny(
    "scaler_and_clip",
    """
    scaler = 1e-4  # of the targets
    for epoch in range(3):
        for _ in range(4):
            x = torch.randn(64, 8)
            with torch.autocast(device_type="cpu", dtype=torch.half):
                loss = ((net(x) * scaler).float() - scaler * x.sum(1, True)).square().mean()
            opt.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(net.parameters(), 1.0)
            opt.step()
    """,
    'grad_scaler = torch.amp.GradScaler("cpu")',
    "grad_scaler.scale(loss).backward()",
    "grad_scaler.unscale_(opt)",
    "grad_scaler.step(opt)",
    "grad_scaler.update()",
)  # fmt: skip
tiny(
    "gradients_read_by_the_script",
    """
    kind = dict(dtype=torch.float16)
    for _ in range(12):
        x = torch.randn(64, 8)
        with torch.autocast("cpu", **kind): y = net(x) * 1e-4
        loss = (y.float() - 1e-4 * x.sum(1, keepdim=True)).square().mean()
        opt.zero_grad(); loss.backward(); print(net[0].weight.grad.norm()); opt.step()
    """,
    None,
)  # fmt: skip
add(
    "GS205", "scheduler_before_the_new_head",
    """
    net = nn.Sequential(nn.Linear(4, 8), nn.Tanh()); net.head = nn.Linear(8, 9)
    opt = torch.optim.SGD(net.parameters(), lr=.01)
    schedule = torch.optim.lr_scheduler.ConstantLR(opt)
    net.head = nn.Linear(8, 1)  # one number
    for x, y in data:
        loss = F.mse_loss(net(x), y)
        opt.zero_grad(); loss.backward(); opt.step(); schedule.step()
    """,
    "net.head = nn.Linear(8, 1)  # one number",
)  # fmt: skip
add(
    "GS205", "head_replaced_by_a_function",
    """
    def adapted(model, outputs):
        model.head = nn.Linear(8, outputs)
        return model
    net = nn.Sequential(nn.Linear(4, 8), nn.Tanh()); net.head = nn.Linear(8, 9)
    opt = torch.optim.SGD(net.parameters(), lr=.01)
    net = adapted(net, 1)
    for x, y in data:
        loss = F.mse_loss(net(x), y)
        opt.zero_grad(); loss.backward(); opt.step()
    """,
    "net = adapted(net, 1)",
)  # fmt: skip
add(
    "GS205", "replaced_in_the_loop",
    """
    import copy
    for i, (x, y) in enumerate(data * 3):
        if i == 20:
            net = copy.deepcopy(net)
        loss = F.mse_loss(net(x), y)
        net.zero_grad(); loss.backward(); opt.step()
    """,
    "opt = torch.optim.SGD(net.parameters(), lr=.01)",
)  # fmt: skip

CENTRES = """
class Centres(nn.Module):
    def __init__(self):
        super().__init__()
        self.centres = nn.Parameter(torch.randn(2, 8))
    def forward(self, h, y):
        return F.mse_loss(h, self.centres[(y[:, 0] > 0).long()])
"""
LEARN = """
def learn(body, head, pull, opt):
    for x, y in data:
        h = body(x); loss = F.mse_loss(head(h), y) + 0.1 * pull(h, y)
        opt.zero_grad(); loss.backward(); opt.step()
"""
CENTRED = START + CENTRES + LEARN
add(
    "GS205", "loss_with_centres",
    """
    pull = Centres()
    opt = torch.optim.Adam(net.parameters(), lr=.01)  # all
    learn(net[:2], net[2], pull, opt)
    """,
    "opt = torch.optim.Adam([*net.parameters(), *pull.parameters()], lr=.01)  # all",
    around=CENTRED,
)  # fmt: skip
add(
    "GS205", "loss_with_centres_made_in_pairs",
    """
    pull, steps = Centres(), 24
    opt = torch.optim.Adam(params=list(net.parameters()), lr=.01)
    learn(net[:2], net[2], pull, opt)
    """,
    "opt = torch.optim.Adam(params=[*net.parameters(), *pull.parameters()], lr=.01)",
    around=CENTRED,
)  # fmt: skip
add(
    "GS205", "loss_of_two_assignments",
    """
    pull = Centres()
    if net.training:
        pull = Centres()
    opt = torch.optim.Adam(net.parameters(), lr=.01)
    learn(net[:2], net[2], pull, opt)
    """,
    None,
    around=CENTRED,
)  # fmt: skip
