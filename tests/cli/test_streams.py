import os
import sys

from gradscope.cli.console import reserved_stdout


def test_captured_stdout_gets_the_report_and_nothing_else(capfd):
    with reserved_stdout() as stdout:
        sys.stdout.write("from user code\n")
        os.write(1, b"from C code\n")
        stdout.write("the report\n")
    sys.stdout.write("afterwards\n")
    captured = capfd.readouterr()
    assert captured.out == "the report\nafterwards\n"
    assert captured.err == "from user code\nfrom C code\n"


def test_replaced_stdout_is_used_itself(capsys):
    replaced = sys.stdout
    with reserved_stdout() as stdout:
        sys.stdout.write("from user code\n")
        stdout.write("the report\n")
    assert sys.stdout is replaced
    captured = capsys.readouterr()
    assert captured.out == "the report\n"
    assert captured.err == "from user code\n"


def test_descriptors_are_put_back_when_user_code_raises(capfd):
    try:
        with reserved_stdout():
            raise ValueError
    except ValueError:
        os.write(1, b"back\n")
    assert capfd.readouterr().out == "back\n"
