"""`gradscope inspect`."""

import shlex
import sys

from gradscope.cli import options
from gradscope.cli.output import (
    check_destinations,
    files_of_target,
    save_recording,
    set_verbosity,
    write_report,
)
from gradscope.cli.rules import settings_of
from gradscope.cli.running import exit_if_broken, run_target
from gradscope.cli.streams import reserved_stdout
from gradscope.errors import GradscopeError


def inspect(  # noqa: PLR0913 - the signature is the list of options
    target: options.TargetArgument,
    args: options.FileArguments = None,
    model: options.ModelOption = None,
    batch: options.BatchOption = None,
    loss: options.LossOption = None,
    inputs: options.InputOption = None,
    grad_output: options.GradOutputOption = None,
    device: options.DeviceOption = "cpu",
    mode: options.ModeOption = "train",
    seed: options.SeedOption = 0,
    dtype: options.DtypeOption = None,
    checkpoint: options.CheckpointOption = None,
    eager: options.EagerOption = False,
    probe_steps: options.ProbeStepsOption = 3,
    tensors: options.TensorsOption = "top",
    sort: options.SortOption = "order",
    top: options.TopOption = 5,
    module: options.ModuleOption = None,
    depth: options.DepthOption = None,
    select: options.SelectOption = None,
    ignore: options.IgnoreOption = None,
    extend_select: options.ExtendSelectOption = None,
    config: options.ConfigOption = None,
    output_format: options.OutputFormatOption = "full",
    output_file: options.OutputFileOption = "-",
    save: options.SaveOption = None,
    force: options.ForceOption = False,
    quiet: options.QuietOption = False,
    verbose: options.VerboseOption = False,
    color: options.ColorOption = "auto",
) -> None:
    """Run one forward and backward, and report every gradient, where it arose and in which line.

    gradscope imports and runs the target's code, as pytest does.
    """
    set_verbosity(quiet=quiet, verbose=verbose)
    check_file_arguments(args)
    destinations = check_destinations(
        output_file, save, force=force, inputs=files_of_target(target)
    )
    settings = settings_of(config, select, ignore, extend_select)
    with reserved_stdout() as stdout:
        from gradscope.report.view import ViewOptions
        from gradscope.target.options import TargetOptions

        chosen = TargetOptions(
            model=model,
            batch=batch,
            loss=loss,
            inputs=tuple(inputs or ()),
            grad_output=grad_output,
            device=device,
            mode=mode,
            seed=seed,
            dtype=dtype,
            checkpoint=checkpoint,
            args=tuple(args or ()),
            eager=eager,
        )
        report = run_target(target, chosen, probe_steps=probe_steps, settings=settings)
        if destinations.recording is not None:
            save_recording(report, destinations.recording, force=force)
        view = ViewOptions(
            tensors=tensors, sort=sort, top=top, module=module, depth=depth, can_save=True
        )
        write_report(
            report,
            output_format,
            view,
            destination=destinations.report,
            stdout=stdout,
            color=color,
        )
    exit_if_broken(report)


def check_file_arguments(args: list[str] | None) -> None:
    """Make sure that what follows TARGET was meant for the file.

    Raises:
        GradscopeError: There is no `--` before it.
    """
    if args and "--" not in sys.argv:
        raise GradscopeError(
            f"one TARGET at a time: {args[0]!r} is one too many",
            help=f"arguments for the target's file go after --: -- {shlex.join(args)}",
        )
