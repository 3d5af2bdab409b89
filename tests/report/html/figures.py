"""Figures as a browser finds them: columns decoded, colours of the theme replaced."""

import re
import struct
from base64 import b64decode

import plotly.graph_objects as go

COLOUR = "#123456"


def plain(value):
    """Return what painters find in JSON, written after the description of columns."""
    if isinstance(value, dict):
        if "count" in value and "same" in value:
            same = value["same"]
            return [float(same) if isinstance(same, str) else same] * value["count"]
        if "words" in value and "at" in value:
            return [None if at < 0 else value["words"][at] for at in _integers(value)]
        if set(value) == {"at", "bytes"}:
            return [None if at < 0 else at for at in _integers(value)]
        if "f8" in value or "f4" in value:
            name, code = ("f8", "d") if "f8" in value else ("f4", "f")
            found = [one for (one,) in struct.iter_unpack(f"<{code}", b64decode(value[name]))]
            for (position,) in struct.iter_unpack("<i", b64decode(value.get("none", ""))):
                found[position] = None
            return found
        return {key: plain(one) for key, one in value.items()}
    if isinstance(value, list | tuple):
        return [plain(one) for one in value]
    return value


def shown(chart, *chosen):
    """Return a plot's figure after choices, by the labels on their buttons."""
    content = plain(chart.content)
    figure = content["figure"]
    for switch in content.get("switches", ()):
        for choice in switch["choices"]:
            if choice["label"] in chosen:
                patches = choice.get("data", [])
                data = [
                    _patched(trace, patches[at] if at < len(patches) else None)
                    for at, trace in enumerate(figure["data"])
                ]
                layout = _patched(figure["layout"], choice.get("layout"))
                figure = {"data": data, "layout": layout}
    return figure


def labels(chart):
    """Return what stands on the buttons of a plot."""
    switches = plain(chart.content).get("switches", ())
    return [choice["label"] for switch in switches for choice in switch["choices"]]


def assert_valid(chart):
    """Let plotly check every way in which a figure can be shown."""
    for chosen in ([], *([label] for label in labels(chart))):
        go.Figure(_coloured(shown(chart, *chosen)))


def trace(figure, name):
    """Return the trace of a name."""
    return next(one for one in figure["data"] if one.get("name") == name)


def _integers(column):
    code = {1: "b", 2: "h", 4: "i"}[column["bytes"]]
    return [value for (value,) in struct.iter_unpack(f"<{code}", b64decode(column["at"]))]


def _patched(given, patch):
    if patch is None:
        return given
    if not isinstance(given, dict) or not isinstance(patch, dict):
        return patch
    return given | {key: _patched(given.get(key), one) for key, one in patch.items()}


def _coloured(value):
    if isinstance(value, str) and re.fullmatch(r"@[a-z]+(-[a-z0-9]+)*", value):
        return COLOUR
    if isinstance(value, dict):
        return {key: _coloured(one) for key, one in value.items()}
    if isinstance(value, list):
        return [_coloured(one) for one in value]
    return value
