"""Metrics and findings of a running training in the trackers that people have."""

import math
import struct
import sys
import time

import pytest
import torch
from torch import nn

import gradscope
from gradscope.errors import GradscopeError
from gradscope.export.trackers import check_log, make_sink

pytestmark = pytest.mark.filterwarnings("ignore")  # the trackers' own

STEPS = 4


def train(log, *, begin=None, on_step=None):
    """Train with an error that gradscope finds; return the norms before clipping."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 3), nn.Linear(3, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    norms = []
    with gradscope.watch(model, optimizer, log=log, budget=None, tensors=False):
        for step in range(STEPS):
            if begin is not None and step == 0:
                begin()
            model(torch.randn(8, 4)).square().mean().backward()  # without zero_grad: GS301
            norms.append(float(nn.utils.clip_grad_norm_(model.parameters(), 1e-3)))
            optimizer.step()
            if on_step is not None:
                on_step(step)
    return norms


def check_layers(last, norms):
    """Check the norms of the layers of the last step: together they are the global one."""
    layers = [last["grad_norm/model.0"], last["grad_norm/model.1"]]
    assert math.hypot(*layers) == pytest.approx(norms[-1], rel=1e-4)


def test_tensorboard(tmp_path):
    pytest.importorskip("tensorboard")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    norms = train(f"tensorboard:{tmp_path / 'events'}")
    read = EventAccumulator(str(tmp_path / "events"), size_guidance={"tensors": 0})
    read.Reload()
    shown = read.Scalars("grad_norm/global")
    assert [one.step for one in shown] == [0, 1, 2, 3]
    assert [one.value for one in shown] == pytest.approx(norms, rel=1e-5)
    tags = read.Tags()["scalars"]
    check_layers({tag: read.Scalars(tag)[-1].value for tag in tags}, norms)
    assert read.Scalars("gradscope/findings")[-1].value == 1
    (alert,) = read.Tensors("gradscope/GS301")
    assert b"missing-zero-grad" in alert.tensor_proto.string_val[0]


def _wandb_records(folder):
    """Return the records of a finished run; another process writes them."""
    from wandb.proto.wandb_internal_pb2 import Record

    (file,) = folder.glob("wandb/offline-run-*/*.wandb")
    for _ in range(100):
        records = [Record.FromString(data) for data in _log_records(file.read_bytes())]
        if any(one.WhichOneof("record_type") == "exit" for one in records):
            return records
        time.sleep(0.1)
    raise AssertionError("wandb has not finished the run")


def _log_records(data, block=32768, header=7):
    """Yield the records of a file in LevelDB's log format, behind a header of wandb's."""
    position, parts = header, []
    while position + header <= len(data):
        if block - position % block < header:  # padding
            position += block - position % block
            continue
        _, length, kind = struct.unpack_from("<IHB", data, position)
        position += header + length
        parts.append(data[position - length : position])
        if kind in (1, 4):  # whole, or the last part
            yield b"".join(parts)
            parts = []


def _rows(records):
    for one in records:
        items = {i.key or ".".join(i.nested_key): i.value_json for i in one.history.item}
        if items:
            yield items


@pytest.fixture(name="wandb_offline")
def _wandb_offline(tmp_path, monkeypatch):
    wandb = pytest.importorskip("wandb")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "excepthook", sys.excepthook)  # a run of the script's replaces it
    for name, value in {"MODE": "offline", "SILENT": "true", "DIR": str(tmp_path)}.items():
        monkeypatch.setenv(f"WANDB_{name}", value)
    yield wandb
    wandb.teardown()


def test_wandb_with_a_run_of_its_own(tmp_path, wandb_offline):
    hook = sys.excepthook
    norms = train("wandb:study")
    assert sys.excepthook is hook
    assert wandb_offline.run is None
    records = _wandb_records(tmp_path)
    rows = [row for row in _rows(records) if "grad_norm/global" in row]
    shown = [float(row["grad_norm/global"]) for row in rows]
    assert shown == pytest.approx(norms, rel=1e-5)
    assert [int(row["gradscope/step"]) for row in rows] == [0, 1, 2, 3]
    check_layers({one: float(rows[-1][one]) for one in rows[-1] if "_norm/" in one}, norms)
    alerts = [one.alert for one in records if one.WhichOneof("record_type") == "alert"]
    assert [one.title for one in alerts] == ["GS301 missing-zero-grad"]


def test_wandb_in_the_run_of_the_script(tmp_path, wandb_offline):
    def begin():
        wandb_offline.init(project="own")

    train("wandb", begin=begin, on_step=lambda step: wandb_offline.log({"own": step}))
    wandb_offline.finish()
    rows = list(_rows(_wandb_records(tmp_path)))
    own = [int(row["own"]) for row in rows if "own" in row]
    assert own == [0, 1, 2, 3]
    assert [int(row["_step"]) for row in rows if "own" in row] == [0, 1, 2, 3]
    assert any("grad_norm/global" in row and "own" in row for row in rows)


@pytest.fixture(name="mlflow_files")
def _mlflow_files(tmp_path, monkeypatch):
    mlflow = pytest.importorskip("mlflow")
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")
    before = mlflow.get_tracking_uri()
    mlflow.set_tracking_uri((tmp_path / "runs").as_uri())
    yield mlflow
    mlflow.set_tracking_uri(before)


def test_mlflow_with_a_run_of_its_own(mlflow_files):
    norms = train("mlflow:study")
    client = mlflow_files.MlflowClient()
    experiment = client.get_experiment_by_name("study")
    (run,) = client.search_runs([experiment.experiment_id])
    shown = client.get_metric_history(run.info.run_id, "grad_norm/global")
    assert [one.step for one in shown] == [0, 1, 2, 3]
    assert [one.value for one in shown] == pytest.approx(norms, rel=1e-5)
    check_layers(run.data.metrics, norms)
    assert run.data.metrics["gradscope/findings"] == 1
    assert run.data.tags["gradscope.GS301"].startswith("GS301 missing-zero-grad\n")
    assert run.info.status == "FINISHED"


def test_mlflow_in_the_run_of_the_script(mlflow_files):
    norms = train("mlflow", begin=mlflow_files.start_run)
    run = mlflow_files.active_run()
    assert run is not None
    mlflow_files.end_run()
    data = mlflow_files.MlflowClient().get_run(run.info.run_id).data
    assert data.metrics["grad_norm/global"] == pytest.approx(norms[-1], rel=1e-5)


def test_trackio(tmp_path, monkeypatch):
    monkeypatch.setenv("TRACKIO_DIR", str(tmp_path))
    pytest.importorskip("trackio")
    from trackio.sqlite_storage import SQLiteStorage

    monkeypatch.setattr("trackio.sqlite_storage.TRACKIO_DIR", tmp_path)
    norms = train("trackio:study")
    (name,) = SQLiteStorage.get_runs("study")
    rows = [row for row in SQLiteStorage.get_logs("study", name) if "grad_norm/global" in row]
    assert [row["step"] for row in rows] == [0, 1, 2, 3]
    assert [row["grad_norm/global"] for row in rows] == pytest.approx(norms, rel=1e-5)
    (alert,) = SQLiteStorage.get_alerts("study")
    assert alert["title"] == "GS301 missing-zero-grad"


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("neptune", "expected one of tensorboard:DIR, wandb, mlflow, trackio"),
        ("tensorboard", "needs a folder"),
        ("", "expected one of"),
    ],
)
def test_wrong_name_is_an_error(name, message):
    with pytest.raises(GradscopeError, match=message):
        check_log(name)
    with pytest.raises(GradscopeError, match=message):
        gradscope.watch(log=name)


def test_missing_package_is_an_error(monkeypatch):
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(GradscopeError, match="wandb, which is not installed") as caught:
        check_log("wandb")
    assert caught.value.help == "pip install wandb"


def test_folder_that_cannot_be_written_is_an_error(tmp_path):
    pytest.importorskip("tensorboard")
    (tmp_path / "file").touch()
    with pytest.raises(GradscopeError, match="cannot write"):
        make_sink(f"tensorboard:{tmp_path / 'file' / 'events'}")


def test_tracker_that_fails_leaves_the_training_alone(tmp_path, capsys):
    pytest.importorskip("tensorboard")
    (tmp_path / "file").touch()
    assert len(train(f"tensorboard:{tmp_path / 'file' / 'events'}")) == STEPS
    assert "note: logging to tensorboard" in capsys.readouterr().err
