"""The callback for transformers' Trainer, with the real library."""

import copy
import importlib
import subprocess
import sys

import pytest
import torch

from gradscope.recording.store import load_recording
from gradscope.testing import UnhealthyGradientsError

pytestmark = pytest.mark.filterwarnings("ignore")


@pytest.fixture(scope="module")
def hf():
    """The training: only the worker that has these tests imports the library."""
    pytest.importorskip("transformers")
    pytest.importorskip("accelerate")
    return importlib.import_module("tests.integrations.transformers_training")


@pytest.mark.nightly
def test_norms_are_those_before_clipping_in_the_logs_of_the_trainer(hf, tmp_path):
    tracker = hf.Tracker()
    trainer = hf.make_trainer(tmp_path, tracker, hf.GradscopeCallback())
    trainer.train()
    own = [one for one in trainer.state.log_history if "grad_norm" in one]
    ours = [one for one in trainer.state.log_history if "grad_norm/global" in one]
    assert len(own) == len(ours) == 3
    for one, other in zip(own, ours, strict=True):
        assert other["grad_norm/global"] == pytest.approx(one["grad_norm"], rel=1e-5)
        assert (other["step"], other["epoch"]) == (one["step"], one["epoch"])
        layers = [norm for name, norm in other.items() if "GPT2LMHeadModel." in name]
        assert torch.tensor(layers).norm().item() == pytest.approx(one["grad_norm"], rel=1e-5)
    sent = [(step, logs) for step, logs in tracker.logs if "grad_norm/global" in logs]
    assert [step for step, _ in sent] == [2, 4, 6]
    assert tracker.logs[-1] == (6, {"gradscope/findings": 0.0})


def test_findings_point_at_the_code_of_the_user(hf, tmp_path, capsys):
    path = tmp_path / "run.gradscope"
    callback = hf.GradscopeCallback(save=path)
    hf.make_trainer(tmp_path, callback, kind=hf.Detached).train()
    (found,) = [one for one in callback.report.findings if one.rule == "GS201"]
    assert found.location.source.endswith("last_hidden_state.detach()")
    assert "GS201" in capsys.readouterr().err
    assert len([one for one in load_recording(path).steps if one.optimizer]) == 6


@pytest.mark.nightly
def test_findings_at_the_fail_level_end_the_training_with_an_error(hf, tmp_path):
    with pytest.raises(UnhealthyGradientsError, match="GS201"):
        hf.make_trainer(
            tmp_path, hf.GradscopeCallback(fail_level="warning"), kind=hf.Detached
        ).train()
    hf.make_trainer(tmp_path, hf.GradscopeCallback(fail_level="warning")).train()


@pytest.mark.nightly
def test_clip_of_the_trainer_is_at_its_argument(hf, tmp_path):
    callback = hf.GradscopeCallback()
    hf.make_trainer(tmp_path, callback, max_steps=24, max_grad_norm=4321.5).train()
    (found,) = [one for one in callback.report.findings if one.rule == "GS406"]
    assert "max_grad_norm=4321.5" in found.location.source


@pytest.mark.nightly
def test_precision_of_the_trainer_is_at_its_argument(hf, tmp_path):
    callback = hf.GradscopeCallback()
    net = hf.make_trainer(tmp_path).model.to(torch.bfloat16)
    arguments = hf.TrainingArguments(
        output_dir=str(tmp_path),
        learning_rate=1e-6,
        bf16=True,
        max_steps=24,
        report_to=[],
        use_cpu=True,
        save_strategy="no",
    )
    hf.Trainer(model=net, args=arguments, train_dataset=hf.Tokens(), callbacks=[callback]).train()
    (found,) = [one for one in callback.report.findings if one.rule == "GS603"]
    assert found.location.source == "bf16=True,"
    assert any(one.source.startswith("hf.Trainer(model=net") for one in found.related)
    places = [one.location for one in callback.report.findings]
    assert not any(one.is_installed for one in places if one is not None)


@pytest.mark.nightly
def test_training_is_bit_identical(hf, tmp_path):
    trained = []
    for callbacks in ([hf.GradscopeCallback(tensor_every=1)], []):
        trainer = hf.make_trainer(tmp_path, *callbacks)
        trainer.train()
        trained.append(list(trainer.model.parameters()))
    assert all(map(torch.equal, *trained))


@pytest.mark.nightly
def test_resumed_training_continues_the_recording(hf, tmp_path):
    path = tmp_path / "run.gradscope"
    saving = {"save_strategy": "steps", "save_steps": 3}
    hf.make_trainer(tmp_path, hf.GradscopeCallback(save=path), max_steps=3, **saving).train()
    trainer = hf.make_trainer(tmp_path, hf.GradscopeCallback(save=path), **saving)
    trainer.train(resume_from_checkpoint=True)
    assert [one.name for one in tmp_path.glob("run*")] == ["run.gradscope"]
    steps = [one.index for one in load_recording(path).steps if one.optimizer]
    assert steps == [0, 1, 2, 3, 4, 5]
    ours = [one["step"] for one in trainer.state.log_history if "grad_norm/global" in one]
    assert ours == [2, 4, 6]


@pytest.mark.nightly
def test_trainer_of_trl_has_the_norms(hf, tmp_path):
    datasets, trl = pytest.importorskip("datasets"), pytest.importorskip("trl")
    tokenizers = pytest.importorskip("tokenizers")
    transformers = pytest.importorskip("transformers")
    words = {word: index for index, word in enumerate(["<pad>", "<eos>", *"abcdefgh"])}
    core = tokenizers.Tokenizer(tokenizers.models.WordLevel(words, unk_token="<pad>"))
    core.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
    tokenizer = transformers.PreTrainedTokenizerFast(
        tokenizer_object=core, pad_token="<pad>", eos_token="<eos>"
    )
    arguments = trl.SFTConfig(
        output_dir=str(tmp_path), max_steps=4, max_length=8, logging_steps=2, report_to=[],
        use_cpu=True, bf16=False, gradient_checkpointing=False, save_strategy="no",
    )  # fmt: skip
    trainer = trl.SFTTrainer(
        model=hf.make_trainer(tmp_path).model,
        args=arguments,
        train_dataset=datasets.Dataset.from_list([{"text": "a b c d e f"}] * 32),
        processing_class=tokenizer,
        callbacks=[hf.GradscopeCallback(save=tmp_path / "run.gradscope")],
    )
    trainer.train()
    own = [one["grad_norm"] for one in trainer.state.log_history if "grad_norm" in one]
    ours = [
        one["grad_norm/global"] for one in trainer.state.log_history if "grad_norm/global" in one
    ]
    assert ours == pytest.approx(own, rel=1e-5)
    assert len(own) == 2
    steps = load_recording(tmp_path / "run.gradscope").steps
    assert len([one for one in steps if one.optimizer]) == 4


def test_callback_can_be_copied(hf):
    copy.deepcopy(hf.GradscopeCallback(save="run.gradscope"))


SCRIPT = """
import sys
sys.path.insert(0, {folder!r})
from transformers_training import make_trainer, GradscopeCallback
callback = GradscopeCallback(save="run.gradscope", fail_level="error")
trainer = make_trainer("out", callback, max_steps=4, ddp_backend="gloo")
net = trainer.model
trainer.train()
"""


@pytest.mark.nightly
def test_each_rank_has_a_recording_and_the_first_one_reports(hf, tmp_path, request):
    (tmp_path / "train.py").write_text(SCRIPT.format(folder=str(request.path.parent)))
    command = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "2", "train.py"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    assert done.stderr.count("Report of") == 1
    assert "2 ranks" in done.stderr
    files = sorted(tmp_path.glob("*.gradscope"))
    assert [one.name for one in files] == ["run.rank0.gradscope", "run.rank1.gradscope"]
    for file in files:
        recording = load_recording(file)
        assert len([one for one in recording.steps if one.optimizer]) == 4
        assert {one.name.split(".")[0] for one in recording.parameters} == {"net"}
