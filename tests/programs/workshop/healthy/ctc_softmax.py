import torch
import torch.nn as nn

BLANK = 0
N_SYMBOLS = 5


class Recognizer(nn.Module):
    def __init__(self, n_feat=6, hidden=24):
        super().__init__()
        self.rnn = nn.GRU(n_feat, hidden, bidirectional=True, batch_first=True)
        self.fc = nn.Linear(2 * hidden, N_SYMBOLS + 1)

    def forward(self, x):
        h, _ = self.rnn(x)
        logits = self.fc(h)
        return logits.log_softmax(-1)


def synth(n=16, length=4, repeat=3):
    labels = torch.randint(1, N_SYMBOLS + 1, (n, length))
    frames = nn.functional.one_hot(labels.repeat_interleave(repeat, 1), N_SYMBOLS + 1).float()
    return frames + 0.1 * torch.randn_like(frames), labels


def train():
    torch.manual_seed(0)
    net = Recognizer()
    ctc = nn.CTCLoss(blank=BLANK, zero_infinity=True)
    opt = torch.optim.Adam(net.parameters(), lr=1e-2)
    for step in range(60):
        x, labels = synth()
        out = net(x).transpose(0, 1)
        in_len = torch.full((16,), out.size(0))
        lab_len = torch.full((16,), labels.size(1))
        loss = ctc(out, labels, in_len, lab_len)
        opt.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(net.parameters(), 5.0)
        opt.step()
        if step % 15 == 0:
            print(step, loss.item())
    print("greedy", net(x)[0].argmax(-1).tolist(), "target", labels[0].tolist())


train()
