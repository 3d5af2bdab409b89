import pytest

from gradscope.cli.errors import BugReport, show_error, user_traceback
from gradscope.errors import GradscopeError, UserCodeError
from gradscope.target.user_code import UserCode


def fail():
    raise ValueError("first\nsecond")


def test_error_has_up_to_three_lines(capsys):
    show_error(GradscopeError("a\nb", cause="c", help="d"))
    assert capsys.readouterr().err == "error: a b\n  cause: c\n  help: d\n"
    show_error(GradscopeError("only"))
    assert capsys.readouterr().err == "error: only\n"


def test_user_code_error_is_preceded_by_the_users_traceback(capsys):
    with pytest.raises(UserCodeError) as caught, UserCode("while trying"):
        fail()
    show_error(caught.value)
    err = capsys.readouterr().err
    assert 'raise ValueError("first\\nsecond")' in err
    assert err.endswith("error: while trying: ValueError: first\n")


def test_chained_exceptions_are_trimmed_too():
    try:
        try:
            fail()
        except ValueError as error:
            raise KeyError("later") from error
    except KeyError as error:
        text = user_traceback(error, is_full=False)
    assert "direct cause" in text
    assert "ValueError" in text


def test_interrupts_are_not_user_errors():
    with pytest.raises(KeyboardInterrupt), UserCode("while trying"):
        raise KeyboardInterrupt


def test_exit_in_user_code_is_told():
    message = r"build\(\) failed: it called sys.exit\(3\)"
    with pytest.raises(UserCodeError, match=message), UserCode("build() failed"):
        raise SystemExit(3)


def test_bug_is_called_a_bug_and_exits_with_two(capsys):
    with pytest.raises(SystemExit) as caught, BugReport():
        fail()
    assert caught.value.code == 2
    err = capsys.readouterr().err
    assert err.startswith("error: this is a bug in gradscope")
    assert "in fail" in err


def test_error_in_python_carries_cause_and_help():
    assert str(GradscopeError("a", cause="b", help="c")) == "a\n  cause: b\n  help: c"
    assert str(GradscopeError("a")) == "a"
