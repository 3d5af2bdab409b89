"""`gradscope run --live` with the real torch: the training is what it is without."""

from textwrap import dedent

from gradscope.recording.store import load_recording
from tests.live.conftest import OF_TERMINALS

SCRIPT = """
    import os, random, time
    random.seed(3)
    import numpy, torch
    from torch import nn

    torch.manual_seed(0)
    numpy.random.seed(1)
    model = nn.Sequential(nn.Linear(3, 8), nn.Dropout(0.5), nn.Linear(8, 1))
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    for step in range(80):
        loss = model(torch.randn(4, 3)).pow(2).mean()
        loss.backward()
        norm = nn.utils.clip_grad_norm_(model.parameters(), 0.1)
        optimizer.step()
        print(step, loss.item().hex(), norm.item().hex(), end="\\r" if step % 2 else "\\n")
        time.sleep(float(os.environ.get("NAP", "0")))
    print(sum(p.double().sum() for p in model.parameters()).item().hex())
    print(torch.rand(1).item().hex(), random.random().hex(), numpy.random.rand().hex())
"""


def test_same_output_to_the_last_byte_and_findings_as_they_come(
    server, terminal, plain_script_in, tmp_path
):
    (tmp_path / "train.py").write_text(dedent(SCRIPT))
    plain = plain_script_in(tmp_path)
    screen = terminal(columns=100)
    server.start(
        tmp_path,
        ["run", "--live", "--check", "train.py"],
        {**OF_TERMINALS, "NAP": "0.05"},
        streams=(screen.name, tmp_path / "out", screen.name),
    )
    # The rules have judged, and seen that nothing is zeroed.
    screen.wait(lambda: screen.shows("error[GS301] train.py:13 missing-zero-grad"), 30)
    shown = screen.screen.rows
    screen.wait(server.has_ended, 60)
    assert server.ended() == 1
    screen.read(0.2)
    assert (tmp_path / "out").read_text() == plain.stdout
    assert screen.is_whole
    labels = [row.partition("  ")[0] for row in shown if row]
    assert labels[0].startswith("gradscope run train.py · ")
    assert labels[1:6] == ["loss", "gradient norm", "before clip", "learning rate", "layers"]
    assert any(row.startswith("0 Linear") for row in shown)
    assert screen.shows("note: wrote train.gradscope")
    assert len(load_recording(tmp_path / "train.gradscope").steps) == 80
    assert [path.name for path in sorted(tmp_path.iterdir())] == [
        "out", "train.gradscope", "train.py",
    ]  # fmt: skip
