"""A script under `gradscope run` behaves as under python."""

import re
import signal
import zipapp
from textwrap import dedent

import pytest

FACTS = """
    import sys
    main = sys.modules["__main__"]
    print(sorted(set(vars(main)) - {"main"}))
    print(__name__, __file__, __package__, __spec__ and __spec__.name, __cached__)
    print(type(__loader__).__name__, __builtins__ is sys.modules["builtins"])
    print(sys.argv, sys.path)
    print(sys.excepthook is sys.__excepthook__, sys.stdout is sys.__stdout__)
    print([finder for finder in sys.meta_path if "gradscope" in type(finder).__module__][1:])
    print("torch" in sys.modules, "numpy" in sys.modules)
"""


@pytest.mark.parametrize(
    "arguments",
    [
        ("train.py",),
        ("./train.py", "--lr", "0.1", "-o", "x", "--", "--help", "-m"),
        ("sub/../train.py", ""),
        ("link/linked.py",),
        ("sub/größe mit leer.py", "ü"),
        ("-m", "package", "--save", "y"),
        ("-m", "package.inner.train", "-m"),
        ("package",),
        ("archive.pyz", "-m"),
    ],
    ids=lambda arguments: " ".join(arguments),
)
def test_script_finds_itself_as_under_python(arguments, same, write, tmp_path):
    for name in ("train.py", "sub/größe mit leer.py", "package/__main__.py"):
        write(name, FACTS)
    write("package/__init__.py", "import sys; print('package', sys.argv[1:], __name__)")
    zipapp.create_archive(tmp_path / "package", tmp_path / "archive.pyz")
    write("package/inner/__init__.py", "")
    write("package/inner/other.py", "value = 3")
    write("package/inner/train.py", "from .other import value\nimport package\n" + dedent(FACTS))
    (tmp_path / "link").mkdir()
    (tmp_path / "link" / "linked.py").symlink_to(tmp_path / "train.py")
    assert "__main__" in same(*arguments, PYTHONPATH="").stdout


def test_safe_path_is_respected(start, write):
    write("train.py", FACTS)
    plain = start("-P", "train.py")
    assert start("-P", "-m", "gradscope", "run", "train.py").stdout == plain.stdout


@pytest.mark.nightly
def test_pytest_finds_nothing_to_warn_of(start, write):
    write("test_it.py", "def test_it():\n    assert True")
    ended = start("-m", "gradscope", "run", "-m", "pytest", "-W", "error", "test_it.py")
    assert ended.returncode == 0, ended.stderr
    assert "1 passed" in ended.stdout


@pytest.mark.parametrize(
    "code",
    ["", "0", "3", "-1", "256", "True", "None", "'a message'", "('a', 2)", "3.5", "'größe'"],
)
def test_exit_code(code, same, write):
    write("train.py", f"import sys\nprint('before')\nsys.exit({code})")
    same("train.py")


RAISING = {
    "exception": """
        def inner():
            raise ValueError("größe")
        try:
            inner()
        except ValueError as error:
            raise RuntimeError("chained") from error
    """,
    "group": """
        try:
            raise OSError(2, "no")
        except OSError as error:
            raise ExceptionGroup("several", [error, ValueError(1)])
    """,
    "assertion": "assert 1 == 2, 'no'",
    "base exception": "class Own(BaseException): pass\nraise Own('x')",
    "generator": "def f():\n    yield 1 / 0\nlist(f())",
    "system exit subclass": "class Own(SystemExit):\n    code = 5\nraise Own",
    "end of input": "input('? ')",
    "broken pipe": "raise BrokenPipeError(32, 'nobody reads')",
    "os exit": "import os\nprint('gone', flush=True)\nos._exit(3)",
    "killed": "import os, signal\nos.kill(os.getpid(), signal.SIGTERM)",
    "syntax": "print('x'",
    "own hook": """
        import sys
        def hook(kind, error, traceback):
            print(kind.__name__, error, traceback.tb_lineno, sys.exc_info(), traceback.tb_next)
            print(sys.last_value is error)
        sys.excepthook = hook
        raise ValueError("mine")
    """,
    "hook that exits": """
        import sys
        def hook(kind, error, traceback):
            sys.exit(7)
        sys.excepthook = hook
        raise ValueError("mine")
    """,
    "hook that fails": """
        import sys
        def hook(kind, error, traceback):
            raise KeyError("hook")
        sys.excepthook = hook
        raise ValueError("mine")
    """,
    "import error": """
        try:
            import no_such_module
        except ImportError:
            import json.no_such_part
    """,
    "broken torch": "import sys\nsys.path.insert(0, 'broken')\nimport torch",
    "raising torch": "import sys\nsys.path.insert(0, 'raising')\nimport torch",
    "thread": """
        import threading
        threading.Thread(target=lambda: 1 / 0, name="one").start()
    """,
    "atexit": """
        import atexit
        atexit.register(int, "no number")
        raise SystemExit(4)
    """,
}


@pytest.mark.parametrize("script", RAISING.values(), ids=RAISING.keys())
def test_what_a_script_does_not_catch(script, same, write):
    write("broken/torch/__init__.py", "from . import missing")
    write("raising/torch/__init__.py", "raise ValueError('mine')")
    write("train.py", script)
    same("train.py")


def test_recursion_is_as_deep_but_for_a_few_frames(both, write):
    write("train.py", "def f(n):\n    f(n + 1)\nf(0)")
    plain, watched = both("train.py")
    count = re.compile(r"(?<=repeated )\d+")
    assert count.sub("", watched.stderr) == count.sub("", plain.stderr)
    assert int(count.findall(watched.stderr)[0]) > int(count.findall(plain.stderr)[0]) - 20


@pytest.mark.parametrize("script", ["x = '\0'", "# -*- coding: nothing -*-"])
def test_what_is_no_python(script, both, write):
    write("train.py", script)
    plain, watched = both("train.py")
    assert watched.returncode == plain.returncode == 1
    assert watched.stderr.splitlines()[-1].startswith("SyntaxError: ")
    assert "gradscope" not in watched.stderr


def test_ctrl_c(same, write):
    write(
        "train.py",
        """
        import atexit, os, signal, time
        atexit.register(print, "at the end")
        try:
            os.kill(os.getpid(), signal.SIGINT)
            time.sleep(5)
        finally:
            print("finally")
        """,
    )
    plain = same("train.py")
    assert plain.returncode == -signal.SIGINT
    assert plain.stdout.split("\n")[:2] == ["finally", "at the end"]


def test_handler_of_signals_is_the_scripts(same, write):
    write(
        "train.py",
        """
        import os, signal
        print(signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM))
        signal.signal(signal.SIGTERM, lambda *_: print("told to end"))
        os.kill(os.getpid(), signal.SIGTERM)
        """,
    )
    assert "told to end" in same("train.py").stdout


def test_missing_module_inside_of_the_package_is_the_packages_failure(both, write):
    write("package/__init__.py", "import no_such_module")
    write("package/train.py", "")
    plain, watched = both("-m", "package.train")
    assert plain.returncode == watched.returncode == 1
    assert watched.stderr.endswith("ModuleNotFoundError: No module named 'no_such_module'\n")
    assert "gradscope" not in watched.stderr
