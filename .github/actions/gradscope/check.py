"""Runs `gradscope check` with the inputs of the action, and sets its outputs.

The inputs come in the environment, and become elements of a list of arguments: no shell reads them.
"""

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
        report: Gets the text for the log where the format is for annotations.

    Raises:
        ValueError: A quote in the input `args` is not closed.
    """
    output_format = environment.get("INPUT_OUTPUT_FORMAT") or "github"
    options = {
        "--output-format": output_format,
        "--fail-level": environment.get("INPUT_FAIL_LEVEL"),
        "--also": f"full={report}" if output_format == "github" else None,
    }
    sarif = environment.get("INPUT_SARIF_FILE")
    targets = map(str.strip, environment.get("INPUT_TARGETS", "").splitlines())
    return [
        "check",
        *(f"{name}={value}" for name, value in options.items() if value),
        *([f"--also=sarif={sarif}"] if sarif else []),
        # The name of a file is no option, whatever it begins with.
        *(f"./{target}" if target.startswith("-") else target for target in targets if target),
        *shlex.split(environment.get("INPUT_ARGS", "")),
    ]


def state(path: Path) -> tuple[int, ...]:
    """Return what tells whether a file was written again; nothing where there is none."""
    try:
        status = path.stat()
    except (OSError, ValueError):
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


def from_workspace(path: Path) -> str:
    """Return a path relative to the workspace, as other actions take it."""
    absolute = path.resolve()
    workspace = Path(os.environ.get("GITHUB_WORKSPACE", ".")).resolve()
    if absolute.is_relative_to(workspace):
        return absolute.relative_to(workspace).as_posix()
    return str(absolute)


def run(report: Path) -> int:
    """Check, set the outputs, and return the exit code."""
    sarif = Path(os.environ.get("INPUT_SARIF_FILE") or os.devnull)
    before = state(sarif)
    try:
        # -P as for the command `gradscope`: modules of the repository hide none of its own.
        command = [sys.executable, "-P", "-m", "gradscope", *arguments(os.environ, report)]
        environment = {"PYTHONIOENCODING": "utf-8", **os.environ}
        code = subprocess.run(command, env=environment, check=False).returncode
    except ValueError as error:
        print(f"error: the inputs cannot be used: {error}", file=sys.stderr)
        code = COULD_NOT_JUDGE
    if report.stat().st_size:
        print_report(report.read_text(encoding="utf-8"))
    elif code == COULD_NOT_JUDGE:
        print("::error title=gradscope::gradscope could not judge: the log says why")
    set_output("exit-code", str(code))
    if os.environ.get("INPUT_SARIF_FILE") and state(sarif) != before:
        set_output("sarif-file", from_workspace(sarif))
    return code


def main() -> int:
    """Check, with a file for the report in the runner's folder for such."""
    sys.stdout.reconfigure(encoding="utf-8")
    handle, name = tempfile.mkstemp(suffix=".txt", dir=os.environ.get("RUNNER_TEMP"))
    os.close(handle)
    report = Path(name)
    try:
        return run(report)
    finally:
        report.unlink()


if __name__ == "__main__":
    sys.exit(main())
