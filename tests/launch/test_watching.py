"""From the script's import of torch to the report, with a fake recorder."""

import json
import re
from importlib.resources import files

import jsonschema
import pytest

from tests.nightly import some_on_push

HEALTHY = "import torch\ntorch.train(3)\nprint('trained')"
SICK = "import torch\ntorch.train(3, zeroed=False)\nprint('trained')"


def recordings(folder):
    return sorted(path.name for path in folder.glob("*.gradscope*"))


def test_report_goes_to_stderr_and_the_recording_beside(gradscope, script, tmp_path):
    script(HEALTHY)
    done = gradscope("run", "train.py")
    assert (done.returncode, done.stdout) == (0, "trained\n")
    assert "\nnote: wrote train.gradscope\n" in done.stderr
    assert done.stderr.startswith("\n")
    assert recordings(tmp_path) == ["train.gradscope"]


def test_recordings_are_numbered_and_never_written_over(gradscope, script, tmp_path):
    script(HEALTHY)
    for _ in range(3):
        gradscope("run", "-q", "train.py")
    assert recordings(tmp_path) == ["train-2.gradscope", "train-3.gradscope", "train.gradscope"]


def test_recording_where_the_user_wants_it(gradscope, script, tmp_path):
    script(HEALTHY)
    assert gradscope("run", "--save", "mine.gradscope", "train.py").returncode == 0
    refused = gradscope("run", "--save", "mine.gradscope", "train.py")
    assert (refused.returncode, refused.stdout) == (2, "")
    assert "'mine.gradscope' already exists" in refused.stderr
    forced = gradscope("run", "--save", "mine.gradscope", "--force", "train.py")
    assert forced.returncode == 0
    assert recordings(tmp_path) == ["mine.gradscope"]
    assert "'no/x'" in gradscope("run", "--save", "no/x", "train.py").stderr


def test_closed_streams_change_nothing(gradscope, script, tmp_path):
    script(SICK + "\nimport os, sys\nsys.stdout.flush()\nos.close(1)\nos.close(2)")
    assert gradscope("run", "train.py").returncode == 0
    script(SICK + "\nimport sys\nsys.stderr.close()\nsys.stdout.close()")
    assert gradscope("run", "train.py").returncode == 0
    assert recordings(tmp_path) == ["train-2.gradscope", "train.gradscope"]


def test_script_that_goes_elsewhere_leaves_the_recording_here(gradscope, script, tmp_path):
    script("import os\nos.mkdir('deep')\nos.chdir('deep')\n" + HEALTHY)
    done = gradscope("run", "-o", "report.json", "--output-format", "json", "train.py")
    assert recordings(tmp_path) == ["train.gradscope"]
    assert json.loads((tmp_path / "report.json").read_text())["summary"]
    assert "schema_version" not in done.stderr


def test_report_on_stdout_only_where_that_is_asked_for(gradscope, script):
    script(HEALTHY)
    done = gradscope("run", "-o", "-", "--output-format", "json", "train.py")
    trained, _, report = done.stdout.partition("\n")
    assert trained == "trained"
    assert json.loads(report)["command"] == "gradscope run -o - --output-format json train.py"


def test_quiet_shows_the_findings_and_the_last_line(gradscope, script, tmp_path):
    script(SICK)
    shown = gradscope("run", "-q", "train.py").stderr
    assert shown.startswith("\nerror[GS301] missing-zero-grad: ")
    assert shown.splitlines()[-1].startswith("1 error, ")
    assert "train.gradscope" not in shown and "gradscope run" not in shown
    assert recordings(tmp_path) == ["train.gradscope"]
    failed = gradscope("run", "-q", "--check", "train.py")
    assert (failed.returncode, failed.stdout) == (1, "trained\n")
    assert "GS301" in failed.stderr


@pytest.mark.parametrize(
    ("text", "options", "code"),
    some_on_push(
        [
            (HEALTHY, ("--check",), 0),
            (SICK, (), 0),
            (SICK, ("--check",), 1),
            (SICK, ("--check", "--ignore", "GS301"), 0),
            (SICK + "\nraise SystemExit(7)", ("--check",), 7),
            (HEALTHY + "\nraise SystemExit(7)", (), 7),
            (SICK + "\n1 / 0", ("--check",), 1),
            ("import torch", ("--check",), 2),
            ("import torch", (), 0),
            ("print('no torch')", ("--check",), 2),
            ("print('no torch')", (), 0),
            ("import torch\nraise SystemExit(3)", ("--check",), 3),
        ],
        4,
    ),
)
def test_exit_code(gradscope, script, text, options, code):
    script(text)
    assert gradscope("run", *options, "train.py").returncode == code


@pytest.mark.parametrize(
    "output_format", some_on_push(["full", "concise", "json", "github", "junit", "sarif"], 3)
)
def test_gate_in_every_format(gradscope, script, tmp_path, output_format):
    script(SICK)
    done = gradscope("run", "--check", "--output-format", output_format, "-o", "out", "train.py")
    assert done.returncode == 1
    report = (tmp_path / "out").read_text()
    assert "GS301" in report or "missing-zero-grad" in report
    if output_format == "full":
        assert report.endswith("Failed: 1 error.\n")


@pytest.mark.parametrize("text", ["import torch", "print('no torch')"])
def test_nothing_seen_is_said_and_leaves_no_file(gradscope, script, tmp_path, text):
    script(text)
    assert "nothing to report" in gradscope("run", "train.py").stderr
    checked = gradscope("run", "--check", "train.py")
    assert checked.stderr.startswith("error: train.py never ")
    assert recordings(tmp_path) == []


FORMATS = [
    *("full", "concise", "json", "jsonl", "markdown"),
    *("github", "gitlab", "junit", "sarif", "html"),
]


@pytest.mark.parametrize(
    ("gate", "output_format"),
    some_on_push([(gate, one) for gate in ((), ("--check",)) for one in FORMATS], 3),
)
def test_nothing_seen_is_written_in_every_format(gradscope, script, tmp_path, output_format, gate):
    script("import torch")
    options = ("--output-format", output_format, "-o", "out", "--force")
    done = gradscope("run", *gate, *options, "train.py")
    assert done.returncode == (2 if gate else 0)
    report = (tmp_path / "out").read_text()
    assert "train.py never called backward" in report
    assert "rules ran" not in report
    if output_format == "json" and not gate:
        schema = json.loads(files("gradscope").joinpath("schemas/report-1.json").read_text())
        jsonschema.Draft202012Validator(schema).validate(json.loads(report))
        assert json.loads(report)["rules"]["ran"] == []


@pytest.mark.nightly
def test_processes_that_computed_in_its_place_are_reported(gradscope, script):
    script(
        """
        import subprocess, sys
        import torch
        work = "import time; any(time.process_time() > 1.2 for _ in iter(int, 1))"
        subprocess.run([sys.executable, "-c", work], check=True)
        """
    )
    told = gradscope("run", "train.py").stderr
    assert "train.py never called backward, and its child processes" in told
    assert "gradscope.watch()" in told
    script("import subprocess, sys, torch\nsubprocess.run([sys.executable, '-c', ''])")
    assert "processes" not in gradscope("run", "train.py").stderr


def test_steps_without_a_gradient_cannot_be_judged(gradscope, script):
    script("import torch\ntorch.watch.step(6)")
    done = gradscope("run", "--check", "train.py")
    assert done.returncode == 2
    assert "error: no parameter received a gradient\n" in done.stderr


def test_script_that_failed_has_not_passed(gradscope, script):
    script(HEALTHY + "\nraise SystemExit(3)")
    done = gradscope("run", "--check", "train.py")
    assert done.returncode == 3
    assert "Passed" not in done.stderr


def test_stop_after(gradscope, script):
    script(
        """
        import torch
        try:
            torch.train(9)
        except Exception:
            print("caught")
        finally:
            print("steps", torch.watch.steps)
        print("not reached")
        """
    )
    done = gradscope("run", "--check", "--stop-after", "2", "train.py")
    assert (done.returncode, done.stdout) == (0, "steps 2\n")
    assert "note: stopped train.py after 2 steps" in done.stderr


def test_fail_fast(gradscope, script):
    script("import torch\ntorch.train(200, zeroed=False)\nprint('end')")
    done = gradscope("run", "--check", "--fail-fast", "train.py")
    assert (done.returncode, done.stdout) == (1, "")
    assert re.match(r"note: stopped train.py after \d steps\n", done.stderr)
    script("import torch\ntorch.train(30)\nprint('end')")
    assert gradscope("run", "--check", "--fail-fast", "train.py").stdout == "end\n"


def test_steps_in_a_thread_end_silently(gradscope, script):
    script(
        """
        import threading, torch
        thread = threading.Thread(target=torch.train, args=(9,))
        thread.start()
        thread.join()
        print(torch.watch.steps)
        """
    )
    done = gradscope("run", "-q", "--stop-after", "2", "train.py")
    assert (done.returncode, done.stdout) == (0, "2\n")
    assert re.fullmatch(r"\nNo findings: .*\n", done.stderr)


@pytest.mark.nightly
def test_training_that_outlives_the_main_thread_is_observed(gradscope, script):
    script(
        """
        import threading, time, torch
        def work():
            time.sleep(0.3)
            torch.train(3, zeroed=False)
        threading.Thread(target=work).start()
        """
    )
    assert gradscope("run", "--check", "train.py").returncode == 1


def test_options_of_the_gate_need_the_gate(gradscope, script):
    script(HEALTHY)
    done = gradscope("run", "--max-warnings", "0", "train.py")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("error: --max-warnings needs --check\n")


def test_script_cannot_be_ended_after_the_watching(gradscope, script):
    script(HEALTHY)
    done = gradscope("run", "--max-steps", "2", "--stop-after", "3", "train.py")
    assert (done.returncode, done.stdout) == (2, "")
    assert gradscope("run", "--max-steps", "2", "--stop-after", "2", "train.py").returncode == 0


def test_ranks_have_files_of_their_own_and_the_first_reports(gradscope, script, tmp_path):
    script(SICK)
    first, second = (gradscope("run", "train.py", RANK=rank) for rank in "01")
    assert "missing-zero-grad" in first.stderr
    assert second.stderr == "note: wrote train.rank1.gradscope\n"
    failed = gradscope("run", "--check", "--save", "a.gradscope", "train.py", RANK="1")
    assert failed.returncode == 1
    assert failed.stderr.startswith("error: rank 1: Failed: 1 error.\n")
    assert recordings(tmp_path) == [
        "a.rank1.gradscope",
        "train.rank0.gradscope",
        "train.rank1.gradscope",
    ]


def test_forked_process_reports_nothing(gradscope, script):
    script(
        """
        import os, sys, torch
        torch.train(2)
        if os.fork() == 0:
            sys.exit(4)
        print(os.waitstatus_to_exitcode(os.wait()[1]))
        """
    )
    done = gradscope("run", "train.py")
    assert done.stdout == "4\n"
    assert done.stderr.count("note: wrote") == 1


def test_torch_is_found_as_it_was(gradscope, script):
    script(
        """
        import importlib.util, sys
        before = importlib.util.find_spec("torch")
        import torch
        print(type(torch.__loader__).__name__, vars(torch.__loader__).keys())
        print(torch.__spec__.loader is torch.__loader__, type(before.loader).__name__)
        print([one for one in sys.meta_path if "gradscope" in type(one).__module__])
        """
    )
    assert gradscope("run", "train.py").stdout.splitlines() == [
        "SourceFileLoader dict_keys(['name', 'path'])",
        "True SourceFileLoader",
        "[]",
    ]


def test_torch_that_is_found_at_the_second_attempt_only(gradscope, script, write):
    write("other/torch/__init__.py", "def train(steps):\n    watch.step(1)")
    write(
        "train.py",
        """
        import sys
        for _ in range(2):
            try:
                import torch
            except ImportError as error:
                print(error)
                sys.path.insert(0, "other")
        torch.train(1)
        print(torch.watch.steps)
        """,
    )
    write("torch/__init__.py", "raise ImportError('not yet')")
    assert gradscope("run", "-q", "train.py").stdout == "not yet\n1\n"


def test_torch_that_comes_by_another_way_is_reported(gradscope, script):
    script(
        """
        import sys
        from importlib.machinery import PathFinder
        sys.meta_path.insert(0, PathFinder)
        import torch
        """
    )
    assert "loaded torch in a way that cannot be recorded" in gradscope("run", "train.py").stderr


def test_watch_that_does_not_start_leaves_the_script_alone(gradscope, script, write):
    script("import torch\nprint('trained')")
    write("torch/__init__.py", "is_unwatchable = True")
    done = gradscope("run", "train.py")
    assert (done.returncode, done.stdout) == (0, "trained\n")
    assert done.stderr.splitlines() == [
        "error: this torch cannot be watched",
        "  help: another one",
        "note: train.py continues without recording; set GRADSCOPE=off in the environment to"
        " disable gradscope from the start",
    ]
    assert gradscope("run", "--check", "train.py").returncode == 2


def test_ctrl_c_ends_it_with_a_report(gradscope, script):
    script(SICK + "\nimport atexit\natexit.register(print, 'bye')\nraise KeyboardInterrupt")
    done = gradscope("run", "train.py")
    assert (done.returncode, done.stdout) == (-2, "trained\nbye\n")
    assert done.stderr.index("KeyboardInterrupt") < done.stderr.index("missing-zero-grad")
