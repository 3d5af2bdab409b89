import http.client
from dataclasses import dataclass

import pytest

from gradscope.cli.view import serving
from gradscope.recording.evidence.training import RunEnding
from gradscope.recording.meta import header_of
from gradscope.recording.run_recorder import RunRecorder
from gradscope.rules.settings import DEFAULT_SETTINGS
from tests.recording.test_growing import steps_of
from tests.report.html.charts.loops import loop

RETURNED = RunEnding(kind="returned", code=0)


def begun_run(path, losses=(1.0, 0.5, 0.25)):
    """Write a run that goes on; return its recorder."""
    path.parent.mkdir(parents=True, exist_ok=True)
    recording = loop(losses)
    recorder = RunRecorder(path, header_of(recording))
    for step in steps_of(recording):
        recorder.add(step)
    return recorder


def written_run(path, losses=(1.0, 0.5, 0.25), ending=RETURNED):
    begun_run(path, losses).close(ending)
    return path


@dataclass(frozen=True)
class Reply:
    status: int
    headers: http.client.HTTPMessage
    text: str


@dataclass(frozen=True)
class Client:
    """Sends requests to a server as a browser, or as somebody else."""

    server: object

    def ask(self, path="", *, method="GET", token=None, **headers):
        """Ask for a path below the address; headers are given as `Sec_Fetch_Site`."""
        token = self.server.token if token is None else token
        port = self.server.server_address[1]
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
        names = {name.replace("_", "-"): value for name, value in headers.items()}
        connection.request(method, f"/{token}/{path}", headers=names)
        reply = connection.getresponse()
        text = reply.read().decode()
        connection.close()
        return Reply(reply.status, reply.headers, text)

    def messages(self, path):
        """Return a function that waits for the next message of a page."""
        port = self.server.server_address[1]
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
        connection.request("GET", f"/{self.server.token}/{path}")
        reply = connection.getresponse()

        def following():
            while True:
                line = reply.readline().decode()
                if line.startswith("data: "):
                    return line.removeprefix("data: ").strip()

        following.close = connection.close
        return following


@pytest.fixture
def serve():
    """Serves folders and recordings until the test ends."""
    opened = []

    def start(*paths):
        context = serving(paths, DEFAULT_SETTINGS, 0)
        opened.append(context)
        return Client(context.__enter__())

    yield start
    for context in opened:
        context.__exit__(None, None, None)
