"""The colours of drawings, on light and on dark paper."""

_LIGHT = {
    "paper": "#ffffff",
    "panel": "#f6f7f9",
    "line": "#c9d1da",
    "ink": "#1b2129",
    "soft": "#5b6673",
    "module": "#dbe9ff",
    "gradient": "#1f6feb",
    "zero": "#8e5bb5",
    "none": "#b04a00",
    "frozen": "#7d8794",
    "broken": "#c3271f",
    "cut": "#c3271f",
    "cut-soft": "#fdecea",
    "warning": "#9a5b00",
    "note": "#0b6a86",
    **{
        f"g{level}": colour
        for level, colour in enumerate(
            ("#b3c7df", "#92b1d4", "#6f9ac8", "#4c80b6", "#30659d", "#1c4a7c", "#0c2f5a")
        )
    },
}
_DARK = {
    "paper": "#12161c",
    "panel": "#1a2028",
    "line": "#3d4854",
    "ink": "#e6eaf0",
    "soft": "#9aa6b4",
    "module": "#1d3353",
    "gradient": "#6cacff",
    "zero": "#c79be8",
    "none": "#f0a35e",
    "frozen": "#8b96a4",
    "broken": "#ff7b72",
    "cut": "#ff7b72",
    "cut-soft": "#3a1a1a",
    "warning": "#e3b341",
    "note": "#56c2dc",
    **{
        f"g{level}": colour
        for level, colour in enumerate(
            ("#3b4c63", "#466488", "#527dac", "#6598cd", "#86b5e8", "#b0d2f8", "#deedff")
        )
    },
}
_STROKED = ("line", "gradient", "zero", "none", "frozen", "broken", "cut", "ink", "soft")


def style() -> str:
    """Return the style sheet of a drawing.

    Colours stand in classes and not in variables, which other programs than browsers do not know.
    """
    dark = "\n".join(_colours(_DARK))
    return "\n".join(
        [*_RULES, *_colours(_LIGHT), "@media (prefers-color-scheme: dark) {", dark, "}"]
    )


_RULES = (
    'text { font-family: "Helvetica Neue", Helvetica, Arial, "Liberation Sans", sans-serif; }',
    "path { fill: none; }",
    ".dashed { stroke-dasharray: 4 3; }",
    ".dotted { stroke-dasharray: 1 3; }",
    ".strong { font-weight: 600; }",
)


def _colours(colours: dict[str, str]) -> list[str]:
    return [f".f-{name} {{ fill: {colour}; }}" for name, colour in colours.items()] + [
        f".s-{name} {{ stroke: {colour}; }}"
        for name, colour in colours.items()
        if name in _STROKED or name.startswith("g")
    ]
