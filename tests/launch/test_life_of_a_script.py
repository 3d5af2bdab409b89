"""Processes, files and threads of a script, under `gradscope run` as under python."""

import pytest


def test_what_is_said_last(same, write):
    write(
        "train.py",
        """
        import atexit, pickle, threading, time
        from concurrent.futures import ThreadPoolExecutor
        class Point:
            x = 1
        def save():
            point = pickle.loads(pickle.dumps(Point()))
            print("atexit", point.x, threading.main_thread().is_alive())
        atexit.register(print, "registered first, called last")
        atexit.register(save)
        def work():
            time.sleep(0.2)
            print("thread")
        threading.Thread(target=work).start()
        pool = ThreadPoolExecutor(2)
        pool.submit(print, "pool").result()
        print("main")
        """,
    )
    assert same("train.py").stdout.splitlines()[-1] == "registered first, called last"


def test_processes_that_it_starts(same, write):
    write(
        "train.py",
        """
        import multiprocessing, os, sys
        class Item:
            def __init__(self, value):
                self.value = value
        def work(item):
            own = [finder for finder in sys.meta_path if "gradscope" in type(finder).__module__]
            return type(item).__module__, item.value, __name__, len(own), "rich" in sys.modules
        if __name__ == "__main__":
            with multiprocessing.get_context("spawn").Pool(1) as pool:
                print(pool.map(work, [Item(1)]))
            with multiprocessing.get_context("fork").Pool(1) as pool:
                print(pool.map(work, [Item(2)])[0][:3])
            sys.stdout.flush()
            if os.fork() == 0:
                print("child")
                sys.exit(5)
            print("parent", os.waitstatus_to_exitcode(os.wait()[1]))
        """,
    )
    assert "parent 5" in same("train.py").stdout


def test_spawned_workers_of_a_module(same, write):
    write("package/__init__.py", "")
    write(
        "package/train.py",
        """
        import multiprocessing
        def work(value):
            return value + 1, __name__
        if __name__ == "__main__":
            with multiprocessing.get_context("spawn").Pool(1) as pool:
                print(pool.map(work, [1]))
        """,
    )
    assert "__mp_main__" in same("-m", "package.train").stdout


def test_standard_streams(same, write):
    write(
        "train.py",
        """
        import argparse, logging, sys, warnings
        parser = argparse.ArgumentParser()
        parser.add_argument("--lr", type=float, help="the rate")
        print(sys.stdin.read().upper(), sys.stdin.isatty(), sys.stdout.isatty())
        logging.warning("logged")
        warnings.warn("in main", DeprecationWarning)
        print(parser.parse_args())
        """,
    )
    assert "PIPED" in same("train.py", "--lr", "3", stdin="piped\n").stdout
    assert "the rate" in same("train.py", "--help").stdout
    assert same("train.py", "--lr", "much").returncode == 2


@pytest.mark.nightly
def test_streams_and_loggers_that_it_replaces(start, write):
    write(
        "train.py",
        """
        import logging.config, os, sys
        logging.config.dictConfig({"version": 1})
        logging.disable()
        os.mkdir("elsewhere")
        os.chdir("elsewhere")
        sys.stdout = open("out.txt", "w")
        sys.stderr = open("err.txt", "w")
        print("kept")
        """,
    )
    done = start("-m", "gradscope", "run", "--check", "train.py")
    assert done.returncode == 2
    assert done.stdout == ""
    assert "train.py never imported torch" in done.stderr


def test_source_of_its_functions_is_found(same, write):
    write(
        "train.py",
        """
        import inspect, __main__
        def f():
            return 1
        print(inspect.getsource(f), inspect.getfile(f), __main__.f is f)
        """,
    )
    same("train.py")


def test_modules_beside_it_win_over_those_that_gradscope_has_imported(same, write):
    for name in ("models", "rich", "sqlite3", "shlex"):
        write(f"{name}.py", "print(__name__, __file__)")
    write("typer/__init__.py", "print(__name__, __file__)")
    write("os.py", "print('never')")
    write("train.py", "import models, os, rich, shlex, sqlite3, typer\nimport json, queue")
    assert "never" not in same("train.py", PYTHONPATH="").stdout


def test_modules_beside_it_do_not_get_into_the_report(gradscope, script, write):
    for name in ("rich/__init__", "sqlite3", "shutil", "platform"):
        write(f"{name}.py", "raise AssertionError(__name__)")
    script("import torch\ntorch.train(3)")
    done = gradscope("run", "train.py")
    assert (done.returncode, done.stdout) == (0, "")
    assert "3 steps" in done.stderr
    assert "Error" not in done.stderr


def test_warnings_that_it_makes_errors_of_do_not_get_into_the_report(gradscope, script):
    script("import warnings, torch\ntorch.train(3)\nwarnings.simplefilter('error')")
    assert "3 steps" in gradscope("run", "train.py").stderr
