"""The experiment trackers that live metrics go to, each with its own package."""

import importlib
import importlib.util
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from types import ModuleType
from typing import Any, Protocol

from gradscope.errors import GradscopeError
from gradscope.recording.finding import Finding


class Sink(Protocol):
    """Something that shows metrics and findings while a training runs."""

    def log(self, values: Mapping[str, float], step: int) -> None:
        """Show the metrics of a step."""

    def alert(self, finding: Finding, title: str, text: str) -> None:
        """Show a finding."""

    def close(self) -> None:
        """Write what is held, and end what was begun."""


class TensorBoardSink:
    """Writes event files; a finding is a text."""

    def __init__(self, folder: str) -> None:
        self._event = _imported("tensorboard.compat.proto.event_pb2", "tensorboard")
        self._summary = _imported("tensorboard.compat.proto.summary_pb2", "tensorboard")
        self._tensors = _imported("tensorboard.compat.proto.tensor_pb2", "tensorboard")
        name = "tensorboard.summary.writer.event_file_writer"
        try:
            self._writer: Any = _imported(name, "tensorboard").EventFileWriter(folder)
        except OSError as error:
            raise GradscopeError(f"cannot write '{folder}'", cause=error.strerror) from None

    def log(self, values: Mapping[str, float], step: int) -> None:
        """Add the scalars of a step."""
        summary = self._summary.Summary()
        for name, value in values.items():
            summary.value.add(tag=name, simple_value=value)
        self._add(summary, step)

    def alert(self, finding: Finding, title: str, text: str) -> None:
        """Add a text under the tag `gradscope/CODE`."""
        metadata = self._summary.SummaryMetadata
        described = metadata(plugin_data=metadata.PluginData(plugin_name="text"))
        told = self._tensors.TensorProto(
            dtype="DT_STRING", string_val=[f"**{title}**\n\n{text}".encode()]
        )
        summary = self._summary.Summary()
        summary.value.add(tag=f"gradscope/{finding.rule}", metadata=described, tensor=told)
        self._add(summary, finding.step or 0)

    def close(self) -> None:
        """Write the rest."""
        self._writer.close()

    def _add(self, summary: object, step: int) -> None:
        event = self._event.Event(wall_time=time.time(), step=step, summary=summary)
        self._writer.add_event(event)


class WandbSink:
    """Logs to the run that the script has begun, or to one of its own.

    Metrics for a run of the script are added to its next `wandb.log`, so that its step counter
    stays as it is without gradscope.
    """

    def __init__(self, project: str) -> None:
        self._wandb = _imported("wandb", "wandb")
        self._is_own = self._wandb.run is None
        self._run: Any = self._begun(project) if self._is_own else self._wandb.run

    def _begun(self, project: str) -> object:
        hook = sys.excepthook
        try:
            # Another run than the global one, which the script may begin later.
            return self._wandb.init(project=project or "gradscope", reinit="create_new")
        finally:
            sys.excepthook = hook  # it is the script's

    def log(self, values: Mapping[str, float], step: int) -> None:
        """Log the metrics of a step."""
        self._run.log({**values, "gradscope/step": step}, commit=self._is_own)

    def alert(self, finding: Finding, title: str, text: str) -> None:
        """Send an alert."""
        levels = self._wandb.AlertLevel
        level = {"error": levels.ERROR, "warning": levels.WARN}.get(finding.severity, levels.INFO)
        self._run.alert(title=title, text=text, level=level)

    def close(self) -> None:
        """Finish a run of its own."""
        if self._is_own:
            self._run.finish()


class MlflowSink:
    """Logs to the active run, or to one of its own; a finding is a tag."""

    def __init__(self, experiment: str) -> None:
        self._mlflow = _imported("mlflow", "mlflow")
        # Functions such as `mlflow.log_metric` begin a global run, and the script's own `start_run`
        # then raises.
        self._client: Any = self._mlflow.MlflowClient()
        active = self._mlflow.active_run()
        self._is_own = active is None
        self._run: str = self._begun(experiment) if active is None else active.info.run_id

    def _begun(self, experiment: str) -> str:
        name = experiment or "gradscope"
        found = self._client.get_experiment_by_name(name)
        number = self._client.create_experiment(name) if found is None else found.experiment_id
        run: str = self._client.create_run(number).info.run_id
        return run

    def log(self, values: Mapping[str, float], step: int) -> None:
        """Log the metrics of a step."""
        metric = _imported("mlflow.entities", "mlflow").Metric
        # mlflow counts milliseconds.
        now = int(time.time() * 1000)
        metrics = [metric(_mlflow_name(name), value, now, step) for name, value in values.items()]
        self._client.log_batch(self._run, metrics=metrics)

    def alert(self, finding: Finding, title: str, text: str) -> None:
        """Set a tag of the run."""
        self._client.set_tag(self._run, f"gradscope.{finding.rule}", f"{title}\n{text}")

    def close(self) -> None:
        """Finish a run of its own."""
        if self._is_own:
            self._client.set_terminated(self._run)


class TrackioSink:
    """Logs to the run that the script has begun, or to one of its own."""

    def __init__(self, project: str) -> None:
        self._trackio = _imported("trackio", "trackio")
        variables = _imported("trackio.context_vars", "trackio")
        run = variables.current_run.get()
        self._is_own = run is None
        if run is None:
            # By default, trackio shows its dashboard in a notebook.
            run = self._trackio.init(project=project or "gradscope", embed=False)
            variables.current_run.set(None)  # the script may begin its own later
        self._run: Any = run

    def log(self, values: Mapping[str, float], step: int) -> None:
        """Log the metrics of a step."""
        # A step given here would move the counter of the script's run.
        self._run.log({**values, "gradscope/step": step}, step=step if self._is_own else None)

    def alert(self, finding: Finding, title: str, text: str) -> None:
        """Send an alert."""
        levels = self._trackio.AlertLevel
        level = {"error": levels.ERROR, "warning": levels.WARN}.get(finding.severity, levels.INFO)
        self._run.alert(title=title, text=text, level=level)

    def close(self) -> None:
        """Finish a run of its own."""
        if self._is_own:
            self._run.finish()


def _mlflow_name(name: str) -> str:
    """Return a name of which mlflow takes every character."""
    return "".join(one if one.isalnum() or one in "_-. /" else "_" for one in name)


def _imported(module: str, package: str) -> ModuleType:
    """Import a module.

    Raises:
        GradscopeError: Its package is not installed.
    """
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise GradscopeError(
            f"logging needs {package}, which is not installed",
            cause=str(error),
            help=f"pip install {package}",
        ) from None


TRACKERS = ("tensorboard", "wandb", "mlflow", "trackio")
"""Names of the trackers, which are those of their packages."""


def check_log(text: str) -> None:
    """Check the name of a tracker: `tensorboard:DIR`, `wandb[:PROJECT]`, `mlflow[:EXPERIMENT]`.

    Raises:
        GradscopeError: There is no such tracker, its package is missing, or its folder.
    """
    name, _, where = text.partition(":")
    if name not in TRACKERS:
        raise GradscopeError(
            f"--log is {text!r}, expected one of tensorboard:DIR, wandb, mlflow, trackio",
            help="wandb:NAME, mlflow:NAME and trackio:NAME name the project or experiment",
        )
    if name == "tensorboard" and not where:
        raise GradscopeError("--log tensorboard needs a folder", help="--log tensorboard:runs")
    # To find a package takes no time; to import a tracker may take seconds.
    if importlib.util.find_spec(name) is None:
        raise GradscopeError(
            f"--log {name} needs {name}, which is not installed", help=f"pip install {name}"
        )


def make_sink(text: str) -> Sink:
    """Return the tracker of a name that `check_log` accepts.

    Raises:
        GradscopeError: It cannot be opened.
    """
    name, _, where = text.partition(":")
    match name:
        case "tensorboard":
            # The tracker is opened after the first step, and the script may change its folder
            # before.
            return TensorBoardSink(str(Path(where).absolute()))
        case "wandb":
            return WandbSink(where)
        case "mlflow":
            return MlflowSink(where)
        case _:
            return TrackioSink(where)
