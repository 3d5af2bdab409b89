"""Runs `gradscope check` with the inputs of the action, and sets its outputs.

The inputs come in the environment, and become elements of a list of arguments: no shell reads them.
"""

import importlib.util
import os
import secrets
import shlex
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path

COULD_NOT_JUDGE = 2


def arguments(environment: Mapping[str, str], report: Path) -> list[str]:
    """Return the arguments of `gradscope`.

    Args:
        environment: Has the inputs.
        report: Gets the report as text.

    Raises:
        ValueError: A quote in the input `args` is not closed.
    """
    sarif, level = environment.get("INPUT_SARIF_FILE"), environment.get("INPUT_FAIL_LEVEL")
    targets = map(str.strip, environment.get("INPUT_TARGETS", "").splitlines())
    return [
        "check",
        f"--output-format={output_format(environment)}",
        f"--also=full={report}",
        *([f"--also=sarif={sarif}"] if sarif else []),
        *([f"--fail-level={level}"] if level else []),
        # The name of a file is no option, whatever it begins with.
        *(f"./{target}" if target.startswith("-") else target for target in targets if target),
        *shlex.split(environment.get("INPUT_ARGS", "")),
    ]


def output_format(environment: Mapping[str, str]) -> str:
    """Return the format of the main report."""
    return environment.get("INPUT_OUTPUT_FORMAT") or "github"


def state(file: str) -> tuple[int, ...]:
    """Return what tells whether a file was written again; nothing where there is none."""
    try:
        status = Path(file).stat()
    except OSError:
        return ()
    return status.st_mtime_ns, status.st_ino, status.st_size


def set_output(name: str, value: str) -> None:
    """Set an output of the step, whatever characters its value has."""
    # A line that ends the value cannot be in it: nobody can guess it.
    end = secrets.token_hex(16)
    path = os.environ.get("GITHUB_OUTPUT")
    if path:
        with Path(path).open("a", encoding="utf-8") as file:
            file.write(f"{name}<<{end}\n{value}\n{end}\n")


def print_report(text: str) -> None:
    """Print a report into the log; the runner obeys none of its lines."""
    token = secrets.token_hex(16)
    print(f"::stop-commands::{token}", text.rstrip("\n"), f"::{token}::", sep="\n", flush=True)


def from_workspace(file: str) -> str:
    """Return a path relative to the workspace, as other actions take it."""
    absolute = Path(file).resolve()
    workspace = Path(os.environ.get("GITHUB_WORKSPACE", ".")).resolve()
    if absolute.is_relative_to(workspace):
        return absolute.relative_to(workspace).as_posix()
    return str(absolute)


def exit_code(report: Path) -> int:
    """Run the check and return how it ended."""
    if importlib.util.find_spec("gradscope") is None:
        return refused(f"{sys.executable} has no gradscope")
    try:
        given = arguments(os.environ, report)
    except ValueError as error:
        return refused(f"the input `args` cannot be read: {error}")
    # -P as for the command `gradscope`: modules of the repository hide none of its own.
    command = [sys.executable, "-P", "-m", "gradscope", *given]
    environment = {"PYTHONIOENCODING": "utf-8", **os.environ}
    return subprocess.run(command, env=environment, check=False).returncode


def refused(why: str) -> int:
    """Tell why there is no check, and return the exit code for it."""
    print(f"error: {why}", file=sys.stderr)
    return COULD_NOT_JUDGE


def run(report: Path) -> int:
    """Check, set the outputs, and return the exit code."""
    sarif = os.environ.get("INPUT_SARIF_FILE", "")
    before = state(sarif)
    code = exit_code(report)
    if not report.stat().st_size:
        # Whatever ended it, nothing was judged.
        code = COULD_NOT_JUDGE
        print("::error title=gradscope::gradscope could not judge: the log says why")
    elif output_format(os.environ) == "github":
        print_report(report.read_text(encoding="utf-8"))
    set_output("exit-code", str(code))
    if sarif and state(sarif) != before:
        set_output("sarif-file", from_workspace(sarif))
    return code


def main() -> int:
    """Check, with a file for the report in the runner's folder for such."""
    sys.stdout.reconfigure(encoding="utf-8")
    handle, name = tempfile.mkstemp(".txt", "gradscope-", os.environ.get("RUNNER_TEMP"))
    os.close(handle)
    report = Path(name)
    try:
        return run(report)
    finally:
        report.unlink()


if __name__ == "__main__":
    sys.exit(main())
