"""Modules that lose parameters, write in place or carry a state, formatted in many ways."""

from tests.fixes.odd_program import CLASS, CLASSES, HEADER, Program, adding_to

PROGRAMS: list[Program] = []
add = adding_to(PROGRAMS)


def unregistered(name, stored, forward, *added, around=HEADER + CLASSES, make=CLASS, **further):
    body = "".join(f"        {line}\n" for line in stored)
    text = f"{make}{body}    def forward(self, x):\n        {forward}\nmodel = Net()\n"
    add("GS207", name, text, *added, around=around, **further)


FIRST = "self.fc = nn.Linear(4, 3)"
OVER_LIST = "return self.fc(self.inner[1](self.inner[0](x)))"
unregistered(
    "list", [FIRST, "self.inner = [nn.Linear(4, 4), nn.Linear(4, 4)]"], OVER_LIST,
    "self.inner = nn.ModuleList([nn.Linear(4, 4), nn.Linear(4, 4)])",
)  # fmt: skip
unregistered(
    "list_on_many_lines",
    [FIRST, "self.inner = [", "    nn.Linear(4, 4),  # one", "    nn.Linear(4, 4),", "]"],
    OVER_LIST,
    "self.inner = nn.ModuleList([",
    "])",
)
unregistered(
    "tuple", [FIRST, "self.inner = nn.Linear(4, 4), nn.Linear(4, 4)"], OVER_LIST,
    "self.inner = nn.ModuleList((nn.Linear(4, 4), nn.Linear(4, 4)))",
)  # fmt: skip
unregistered(
    "dictionary",
    [FIRST, "self.inner = {'a': nn.Linear(4, 4), 'b': nn.ReLU()}"],
    "return self.fc(self.inner['b'](self.inner['a'](x)))",
    "self.inner = nn.ModuleDict({'a': nn.Linear(4, 4), 'b': nn.ReLU()})",
)
unregistered(
    "appended",
    [FIRST, "self.inner = []", "for _ in range(2): self.inner.append(nn.Linear(4, 4))"],
    OVER_LIST,
    "self.inner = nn.ModuleList()",
)
unregistered(
    "annotated",
    [FIRST, "self.inner: list[nn.Module] = list(nn.Linear(4, 4) for _ in range(2))"],
    OVER_LIST,
    "self.inner: list[nn.Module] = nn.ModuleList(list(nn.Linear(4, 4) for _ in range(2)))",
)
unregistered(
    "tensor", [FIRST, "self.scale = torch.ones(4, requires_grad=True)"],
    "return self.fc(x * self.scale)",
    "self.scale = nn.Parameter(torch.ones(4))",
)  # fmt: skip
unregistered(
    "computed", [FIRST, "self.scale = nn.Parameter(torch.randn(4)) * 0.02"],
    "return self.fc(x * self.scale)",
    "self.scale = nn.Parameter(torch.randn(4) * 0.02)",
)  # fmt: skip
unregistered(
    "parameters", [FIRST, "self.w = [nn.Parameter(torch.ones(4)) for _ in 'ab']"],
    "return self.fc(x * self.w[0] + self.w[1])",
    "self.w = nn.ParameterList([nn.Parameter(torch.ones(4)) for _ in 'ab'])",
)  # fmt: skip
unregistered(
    "renamed_module", ["self.fc = N.Linear(4, 3)", "self.inner = [N.ReLU(), N.Linear(4, 4)]"],
    OVER_LIST,
    "self.inner = N.ModuleList([N.ReLU(), N.Linear(4, 4)])",
    around="import torch, torch.nn as N\nfrom torch.nn import functional as F\n" + CLASSES,
    make=CLASS.replace("nn.Module", "N.Module"),
)  # fmt: skip
unregistered(
    "one_line_of_several",
    [FIRST + "; self.inner = [nn.Linear(4, 4), nn.Linear(4, 4)]; self.n = 2"],
    OVER_LIST,
    FIRST + "; self.inner = nn.ModuleList([nn.Linear(4, 4), nn.Linear(4, 4)]); self.n = 2",
)
unregistered(
    "no_name_for_it", ["self.fc = Linear(4, 3)", "self.inner = [Linear(4, 4), Linear(4, 4)]"],
    OVER_LIST,
    None,
    around="from torch import arange, randn\nfrom torch.nn import Linear, Module\n"
    "from torch.nn import functional as F\n" + CLASSES.replace("torch.", ""),
    make=CLASS.replace("nn.Module", "Module"),
)  # fmt: skip
unregistered(
    "two_targets",
    [FIRST, "self.inner, self.n = [nn.Linear(4, 4), nn.Linear(4, 4)], 2"],
    OVER_LIST,
    None,
)
unregistered(
    "number_keys", [FIRST, "self.inner = {0: nn.Linear(4, 4), 1: nn.Linear(4, 4)}"], OVER_LIST,
    None,
)  # fmt: skip
unregistered(
    "made_in_the_forward", [FIRST],
    "return self.fc(nn.Linear(4, 4)(x))",
    "self.linear = nn.Linear(4, 4)",
    "return self.fc(self.linear(x))",
)  # fmt: skip


def in_place(name, body, *added, **further):
    text = "".join(f"        {line}\n" for line in body)
    program = (
        f"{CLASS}        self.fc = nn.Linear(4, 4); self.out = nn.Linear(4, 3)\n"
        f"    def forward(self, x):\n        h = torch.sigmoid(self.fc(x))\n{text}"
        "        return self.out(h)\nmodel = Net()\n"
    )
    add("GS503", name, program, *added, around=HEADER + CLASSES, **further)


in_place("add", ["h += 1  # shift"], "h = h + 1  # shift")
in_place("scale_by_a_sum", ["h *= x.mean() + 1"], "h = h * (x.mean() + 1)")
in_place("divide_spaced", ["h  /=  2"], "h = h / 2")
in_place("one_line", ["if True: h += 1; h = h * 2"], "if True: h = h + 1; h = h * 2")
in_place("method", ["h.mul_(2)"], "h = h.mul(2)")
in_place("assigned_method", ["h = h.add_(x.mean())"], "h = h.add(x.mean())")
in_place("inplace", ["h = F.relu(h, inplace=True)"], "h = F.relu(h)")
in_place(
    "inplace_in_the_middle", ["h = F.leaky_relu(h, inplace = True, negative_slope=.1)"],
    "h = F.leaky_relu(h, negative_slope=.1)",
)  # fmt: skip
in_place("element", ["h[:, 0] = 0"], "h = h.clone()")
in_place("element_added", ["h[:, 0] += 1"], "h = h.clone()")
in_place("element_one_line", ["if True: h[:, 0] = 0"], "if True: h = h.clone(); h[:, 0] = 0")
in_place(
    "element_on_many_lines", ["h[", "    :, 0", "] = 0"], "h = h.clone()"
)  # fmt: skip
in_place("view", ["row = h[0]", "row += 1"], None)
in_place("view_of_a_method", ["flat = h.view(-1)", "flat.mul_(2)"], None)
in_place("attribute", ["self.h = h", "self.h += 1"], None)
in_place("chained", ["g = h.mul_(2).add(1)", "h = h + g"], None)
in_place("result_unused", ["F.relu(h, inplace=True)"], None)


add(
    "GS503", "helper_that_writes",
    CLASS + """\
        self.fc = nn.Linear(4, 4); self.out = nn.Linear(4, 3)
    def forward(self, x):
        h = torch.sigmoid(self.fc(x))
        shift(h)
        return self.out(h)
def shift(h):
    h += 1
model = Net()
""",
    None,
    around=HEADER + CLASSES,
)  # fmt: skip
add(
    "GS503", "layer",
    CLASS + """\
        self.fc = nn.Linear(4, 4); self.act = nn.ReLU(inplace=True); self.out = nn.Linear(4, 3)
    def forward(self, x):
        h = torch.sigmoid(self.fc(x))
        h = self.act(h)
        return self.out(h)
model = Net()
""",
    "self.fc = nn.Linear(4, 4); self.act = nn.ReLU(); self.out = nn.Linear(4, 3)",
    around=HEADER + CLASSES,
)  # fmt: skip
add(
    "GS503", "layer_whose_result_is_unused",
    CLASS + """\
        self.fc = nn.Linear(4, 4); self.act = nn.ReLU(inplace=True); self.out = nn.Linear(4, 3)
    def forward(self, x):
        h = torch.sigmoid(self.fc(x))
        self.act(h)
        return self.out(h)
model = Net()
""",
    None,
    around=HEADER + CLASSES,
)  # fmt: skip


def carried(name, init, forward, *added, rest="", **further):
    stored = "".join(f"        {line}\n" for line in init)
    body = "".join(f"        {line}\n" for line in forward)
    program = f"{CLASS}{stored}    def forward(self, x):\n{body}{rest}model = Net()\n"
    add("GS502", name, program, *added, around=HEADER + CLASSES, **further)


LAYERS = ["self.a = nn.Linear(4, 4); self.b = nn.Linear(4, 4)", "self.fc = nn.Linear(4, 3)"]
carried(
    "tensor", [*LAYERS, "self.h = torch.zeros(8, 4)"],
    ["self.h = torch.tanh(self.a(x) + self.b(self.h))", "return self.fc(self.h)"],
    "self.h = torch.tanh(self.a(x) + self.b(self.h.detach()))",
)  # fmt: skip
carried(
    "stored_at_the_end", [*LAYERS, "self.h = torch.zeros(8, 4)"],
    ["h = torch.tanh(self.a(x) + self.b(self.h))", "self.h = h  # carry", "return self.fc(h)"],
    "self.h = h.detach()  # carry",
)  # fmt: skip
RNN = "self.rnn = nn.{}(4, 4, batch_first=True); self.fc = nn.Linear(4, 3); self.h = None"
carried(
    "gru", [RNN.format("GRU")],
    ["y, self.h = self.rnn(x[:, None], self.h)", "return self.fc(y[:, -1])"],
    "self.h = self.h.detach()",
)  # fmt: skip
carried(
    "lstm", [RNN.format("LSTM")],
    ["y, self.h = self.rnn(x[:, None], self.h)", "return self.fc(y[:, -1])"],
    "self.h = tuple(part.detach() for part in self.h)",
)  # fmt: skip
carried(
    "stored_twice", [*LAYERS, "self.h = torch.zeros(8, 4)"],
    [
        "self.h = torch.tanh(self.a(x) + self.b(self.h))",
        "self.h = self.h * 2",
        "return self.fc(self.h)",
    ],
    None,
)  # fmt: skip
unregistered(
    "name_of_the_whole_package",
    ["self.fc = Linear(4, 3)", "self.inner = [Linear(4, 4), Linear(4, 4)]"],
    OVER_LIST,
    "self.inner = torch.nn.ModuleList([Linear(4, 4), Linear(4, 4)])",
    around="import torch\nfrom torch.nn import Linear, Module\n"
    "from torch.nn import functional as F\n" + CLASSES,
    make=CLASS.replace("nn.Module", "Module"),
)
in_place("two_writes_on_a_line", ["h += 1; x *= 2"], None)
