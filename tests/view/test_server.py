"""The server: who gets an answer, what it says, and that it follows the recordings."""

import os
import re
import socket
import sqlite3
import subprocess
import sys
import time
from contextlib import closing

import pytest
from lxml import html

from tests.nightly import some_on_push
from tests.view.conftest import begun_run, written_run

NAME = "</script><img src=x onerror=alert(1)>'\"&..\\ü \u202e.gradscope"


def keys_of(reply):
    return html.fromstring(reply.text).xpath("//tr/@data-key")


def test_the_list_shows_state_steps_loss_and_name(serve, tmp_path):
    written_run(tmp_path / "sub" / "run.gradscope", (4.0, 2.0, 1.0))
    page = html.fromstring(serve(tmp_path).ask().text)
    cells = [" ".join(cell.text_content().split()) for cell in page.xpath("//tbody/tr/td")]
    assert cells == [
        "sub/run.gradscope", "ended", "3", "4 → 1", "not judged yet", "now", "compare",
    ]  # fmt: skip


def test_a_recording_opens_as_its_report(serve, tmp_path):
    written_run(tmp_path / "run.gradscope")
    client = serve(tmp_path)
    (key,) = keys_of(client.ask())
    reply = client.ask(f"r/{key}")
    page = html.fromstring(reply.text)
    assert reply.status == 200
    assert page.xpath("//h1")[0].text == "train.py"
    assert page.xpath("//details[@data-chart]/@data-chart")[0] == "curves"
    assert page.xpath("//script/@src") == ["../plotly.js"]
    assert "plotly.js v" in client.ask("plotly.js").text[:500]
    assert "no findings" in client.ask().text  # judged by opening it


def test_two_recordings_open_as_their_comparison(serve, tmp_path):
    for name, losses in (("a", (1.0, 0.5)), ("b", (1.0, 0.7))):
        written_run(tmp_path / f"{name}.gradscope", losses)
    client = serve(tmp_path)
    one, other = keys_of(client.ask())
    page = html.fromstring(client.ask(f"c/{one}/{other}").text)
    assert page.xpath("//h1")[0].text == "b.gradscope → a.gradscope"
    assert page.xpath("//script/@src") == ["../../plotly.js"]


@pytest.mark.parametrize("token", some_on_push(["", "x", "..", "%2e%2e"], 2))
def test_a_wrong_token_gets_nothing(serve, tmp_path, token):
    written_run(tmp_path / "run.gradscope")
    client = serve(tmp_path)
    for path in ("", "plotly.js", f"r/{keys_of(client.ask())[0]}", "events"):
        reply = client.ask(path, token=token)
        assert (reply.status, reply.text) == (404, "")


@pytest.mark.parametrize(
    "headers",
    some_on_push(
        [
            {"Host": "evil.example"},
            {"Host": "evil.example:80"},
            {"Host": "127.0.0.1.evil.example"},
            {"Host": "[::1]"},
            {"Host": ""},
            {"Origin": "http://evil.example"},
            {"Origin": "null"},
            {"Origin": "http://127.0.0.1:1"},
            {"Sec_Fetch_Site": "cross-site"},
            {"Sec_Fetch_Site": "same-site"},
            {
                "Sec_Fetch_Site": "cross-site",
                "Sec_Fetch_Mode": "navigate",
                "Sec_Fetch_Dest": "iframe",
            },
            {
                "Sec_Fetch_Site": "cross-site",
                "Sec_Fetch_Mode": "no-cors",
                "Sec_Fetch_Dest": "script",
            },
        ],
        4,
    ),
)
def test_another_site_gets_nothing(serve, tmp_path, headers):
    client = serve(tmp_path)
    for path in ("", "plotly.js", "events"):
        reply = client.ask(path, **headers)
        assert (reply.status, reply.text) == (404, ""), path


@pytest.mark.parametrize(
    "headers",
    some_on_push(
        [
            {"Host": "localhost:9999"},  # through a tunnel
            {"Sec_Fetch_Site": "none"},
            {"Sec_Fetch_Site": "same-origin"},
            {
                "Sec_Fetch_Site": "cross-site",  # a link that was clicked
                "Sec_Fetch_Mode": "navigate",
                "Sec_Fetch_Dest": "document",
            },
        ],
        2,
    ),
)
def test_the_user_gets_the_page(serve, tmp_path, headers):
    reply = serve(tmp_path).ask(**headers)
    assert reply.status == 200
    assert reply.headers["Cache-Control"] == "no-store"
    assert reply.headers["Referrer-Policy"] == "no-referrer"
    assert reply.headers["Content-Security-Policy"] == "frame-ancestors 'none'"
    assert "Access-Control-Allow-Origin" not in reply.headers


@pytest.mark.parametrize(
    "method", some_on_push(["POST", "PUT", "DELETE", "OPTIONS", "PATCH", "TRACE"], 3)
)
def test_nothing_but_reading_is_possible(serve, tmp_path, method):
    reply = serve(tmp_path).ask(method=method)
    assert (reply.status, reply.text) == (501, "")


def test_it_listens_on_this_machine_alone_and_its_token_is_new(serve, tmp_path):
    one, other = serve(tmp_path).server, serve(tmp_path).server
    assert one.server_address[0] == "127.0.0.1"
    assert one.token != other.token and len(one.token) >= 32
    assert re.fullmatch(r"http://127\.0\.0\.1:\d+/[\w-]+/", one.address)


def test_a_request_that_is_none_gets_nothing(serve, tmp_path):
    server = serve(tmp_path).server
    host = b" HTTP/1.1\r\nHost: localhost\r\n\r\n"
    for text in (b"\r\n\r\n", b"GET\r\n\r\n", b"GET *" + host, b"GET /\xc3\xa9/" + host, b"\xff"):
        with socket.create_connection(server.server_address, timeout=10) as connection:
            connection.sendall(text)
            connection.shutdown(socket.SHUT_WR)
            assert b"<" not in connection.recv(10_000)


def test_addresses_name_no_files(serve, tmp_path):
    written_run(tmp_path / "outside.gradscope")
    (tmp_path / "inside").mkdir()
    client = serve(tmp_path / "inside")
    for path in ("r/../outside.gradscope", "r/..%2foutside.gradscope", "r/x", "../../etc/passwd"):
        reply = client.ask(path)
        assert (reply.status, reply.text) == (404, "")
    assert client.ask(f"r/{'0' * 16}").status == 404


def test_a_hostile_name_is_text(serve, tmp_path):
    name = NAME.replace("/", "|")  # the one sign that no name has
    written_run(tmp_path / name)
    client = serve(tmp_path)
    (key,) = keys_of(client.ask())
    for reply in (client.ask(), client.ask(f"r/{key}"), client.ask(f"c/{key}/{key}")):
        assert reply.status == 200
        assert not html.fromstring(reply.text).xpath("//img")
    shown = html.fromstring(client.ask().text).xpath("//tr/@data-name")
    assert shown == [name.replace("\u202e", "\\u202e")]
    (tmp_path / name).write_text("no recording")
    message = client.ask(f"r/{key}")
    assert not html.fromstring(message.text).xpath("//img")
    assert "not a recording" in message.text


def test_a_removed_and_a_cut_recording_say_so(serve, tmp_path):
    path = written_run(tmp_path / "run.gradscope")
    client = serve(tmp_path)
    (key,) = keys_of(client.ask())
    whole = path.read_bytes()
    path.write_bytes(whole[: len(whole) // 3])
    page = html.fromstring(client.ask(f"r/{key}").text)
    assert "cannot read" in page.xpath("//main/p")[0].text
    path.unlink()
    time.sleep(0.6)
    reply = client.ask(f"r/{key}")
    assert reply.status == 404
    assert "removed or renamed" in reply.text


def test_a_single_recording_opens_at_once_and_may_come_later(serve, tmp_path):
    path = tmp_path / "run.gradscope"
    client = serve(path)
    reply = client.ask()
    assert (reply.status, reply.text) == (302, "")
    target = reply.headers["Location"]
    assert "no step is recorded yet" in client.ask(target).text
    begun_run(path, ()).abandon()
    time.sleep(0.6)
    assert "no step is recorded yet" in client.ask(target).text
    path.unlink()
    written_run(path)
    time.sleep(0.6)
    assert "<h1>train.py</h1>" in client.ask(target).text
    assert len(keys_of(client.ask("?list"))) == 1


def test_messages_come_with_the_steps(serve, tmp_path):
    recorder = begun_run(tmp_path / "run.gradscope", (1.0, 0.5))
    client = serve(tmp_path)
    (key,) = keys_of(client.ask())
    client.ask(f"r/{key}")  # imports
    (tmp_path / "run.gradscope").touch()
    assert "run incomplete" not in client.ask(f"r/{key}").text
    following = client.messages(f"events/{key}")
    first = following()
    assert f'data-stamp="{first}"' in client.ask(f"r/{key}").text
    recorder.close()
    second = following()
    assert second != first
    assert f'data-stamp="{second}"' in client.ask(f"r/{key}").text
    assert client.server.viewed == [(key,)]
    following.close()


def test_a_page_is_rendered_once_for_a_state(serve, tmp_path, monkeypatch):
    path = written_run(tmp_path / "run.gradscope")
    client = serve(tmp_path)
    (key,) = keys_of(client.ask())
    first = client.ask(f"r/{key}").text
    monkeypatch.setattr(client.server.pages, "_reports_of", lambda paths: pytest.fail("again"))
    assert client.ask(f"r/{key}").text == first
    assert path.exists()


def test_recordings_are_left_as_they_are(serve, tmp_path):
    path = written_run(tmp_path / "run.gradscope")
    before = path.read_bytes()
    client = serve(tmp_path)
    client.ask(f"r/{keys_of(client.ask())[0]}")
    assert path.read_bytes() == before
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.nightly
def test_200_recordings_are_listed_within_a_second(serve, tmp_path):
    source = written_run(tmp_path / "0.gradscope", [1 / (1 + step) for step in range(100)])
    content = source.read_bytes()
    for number in range(1, 200):
        (tmp_path / f"{number}.gradscope").write_bytes(content)
    client = serve(tmp_path)
    client.server.pages  # noqa: B018 - imports
    client.ask("plotly.js")
    began = time.process_time()
    assert len(keys_of(client.ask())) == 200
    first = time.process_time() - began
    began = time.process_time()
    assert len(keys_of(client.ask())) == 200
    assert first < 1 and time.process_time() - began < first / 2


def test_a_large_answer_is_compressed_for_who_takes_it(serve, tmp_path):
    client = serve(tmp_path)
    with closing(socket.create_connection(client.server.server_address, timeout=30)) as connection:
        request = f"GET /{client.server.token}/plotly.js HTTP/1.0\r\nHost: localhost\r\n"
        connection.sendall(f"{request}Accept-Encoding: gzip\r\nConnection: close\r\n\r\n".encode())
        assert b"Content-Encoding: gzip" in connection.recv(2_000)


def test_the_server_starts_without_torch(tmp_path):
    code = (
        "import sys; from pathlib import Path; from gradscope.cli.view import serving\n"
        "from gradscope.rules.settings import DEFAULT_SETTINGS\n"
        f"with serving([Path({str(tmp_path)!r})], DEFAULT_SETTINGS, 0) as server:\n"
        "    import urllib.request; urllib.request.urlopen(server.address).read()\n"
        "    print('torch' in sys.modules)"
    )
    environment = {**os.environ, "no_proxy": "*"}
    ended = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=60, env=environment
    )
    assert ended.stdout == "False\n", ended.stderr


def test_a_bug_is_told_and_the_server_goes_on(serve, tmp_path, monkeypatch, capsys):
    written_run(tmp_path / "run.gradscope")
    client = serve(tmp_path)
    (key,) = keys_of(client.ask())

    def broken(paths):
        raise sqlite3.ProgrammingError("a bug")

    monkeypatch.setattr(client.server.pages, "_reports_of", broken)
    reply = client.ask(f"r/{key}")
    assert reply.status == 500
    assert reply.text.startswith("This is a bug in gradscope")
    assert "ProgrammingError: a bug" in capsys.readouterr().err
    assert client.ask().status == 200
