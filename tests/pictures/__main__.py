"""Makes the README's pictures again: `python -m tests.pictures`.

It inspects a sample and watches a training, opens both reports in Chromium, and draws what a
terminal shows as SVG. The page of a run tells how long it took: no two are quite the same.
"""

import os
import re
import shutil
import subprocess
import sys
from dataclasses import dataclass
from io import BytesIO, StringIO
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

from PIL import Image
from playwright.sync_api import Page, expect, sync_playwright
from rich.console import Console
from rich.text import Text

from tests.browser.pages import Pages, installed_browser, launch

ROOT: Final = Path(__file__).parents[2]
IMAGES: Final = ROOT / ".github" / "images"
LIMIT: Final = 300_000
"""Bytes that a picture may have."""

SAMPLE: Final = "sample_models/vanishing_stack.py"
CUT: Final = "sample_models/gradient_cut.py"
COLUMNS: Final = 100
COLOURS: Final = 256
FONTS: Final = "ui-monospace, Menlo, Consolas, 'DejaVu Sans Mono', monospace"


@dataclass(frozen=True, slots=True, kw_only=True)
class Shot:
    """The upper part of a report's page, in light and dark."""

    name: str
    pictures: tuple[str, ...]
    """Those that have to be painted; the shot ends below the last."""
    width: int = 1200


INSPECTION: Final = Shot(name="report", pictures=("depth", "modules"))
RUN: Final = Shot(name="run", pictures=("curves", "heatmap"))


def gradscope(folder: Path, *arguments: str, **environment: str) -> str:
    """Run gradscope in a folder; return what it prints on stdout."""
    done = subprocess.run(
        [sys.executable, "-m", "gradscope", *arguments],
        cwd=folder,
        env={**os.environ, "OMP_NUM_THREADS": "1", "COLUMNS": str(COLUMNS), **environment},
        stdout=subprocess.PIPE,
        text=True,
        encoding="utf-8",
        check=True,
    )
    return done.stdout


def shoot(pages: Pages, page: Path, shot: Shot) -> None:
    """Write the pictures of a page."""
    for theme in ("light", "dark"):
        opened = pages.open(page, width=shot.width, height=1000, dark=theme == "dark")
        end = max(painted_until(opened, name) for name in shot.pictures)
        opened.evaluate("scrollTo(0, 0)")
        picture = opened.screenshot(
            full_page=True, clip={"x": 0, "y": 0, "width": shot.width, "height": end + 16}
        )
        keep(f"{shot.name}-{theme}.png", with_few_colours(picture))


def painted_until(page: Page, picture: str) -> float:
    """Wait until a picture is painted; return where on the page it ends."""
    section = page.locator(f"#panel-0 [data-chart={picture}]")
    section.scroll_into_view_if_needed()
    expect(section.locator(".canvas > *").first).to_be_visible()
    return section.evaluate("section => section.getBoundingClientRect().bottom + scrollY")


def with_few_colours(picture: bytes) -> bytes:
    """Return a PNG of a third of the size that looks the same."""
    made = BytesIO()
    image = Image.open(BytesIO(picture)).convert("RGB")
    # By coverage, which keeps the few marks whose colour is rare.
    few = image.quantize(COLOURS, Image.Quantize.MAXCOVERAGE, dither=Image.Dither.NONE)
    few.save(made, "PNG", optimize=True)
    return made.getvalue()


def terminal(command: str) -> str:
    """Return what a command shows on a terminal, as SVG."""
    shown = gradscope(ROOT, *command.split()[1:], FORCE_COLOR="1", COLORTERM="truecolor")
    console = Console(record=True, width=COLUMNS, file=StringIO(), color_system="truecolor")
    console.print(Text(f"$ {command}", style="bold"))
    for line in shown.splitlines():
        console.print(Text.from_ansi(line), soft_wrap=True)
    drawn = console.export_svg(title="gradscope", unique_id="terminal")
    # With the fonts of the machine: an image loads none.
    drawn = re.sub(r"@font-face \{.*?\}\s*", "", drawn, flags=re.DOTALL)
    return drawn.replace("Fira Code, monospace", FONTS)


def keep(name: str, picture: bytes) -> None:
    """Write a picture, which has to be small."""
    assert len(picture) <= LIMIT, f"{name} has {len(picture):,} bytes"
    (IMAGES / name).write_bytes(picture)


def main() -> None:
    """Write every picture."""
    executable = installed_browser()
    assert executable is not None, "there is no Chromium on this machine: install chromium"
    IMAGES.mkdir(parents=True, exist_ok=True)
    keep("terminal.svg", terminal(f"gradscope inspect {SAMPLE} --tensors none").encode())
    keep("graph.svg", gradscope(ROOT, "graph", CUT, "--output-format", "svg").encode())
    with TemporaryDirectory(prefix="pictures-") as folder, sync_playwright() as playwright:
        position = Path(folder)
        gradscope(ROOT, "inspect", SAMPLE, "-o", str(position / "inspection.html"))
        shutil.copy(Path(__file__).with_name("train.py"), position)
        shutil.copy(ROOT / "sample_models" / "healthy_gpt.py", position)
        gradscope(position, "run", "-o", "run.html", "train.py")
        pages = Pages(launch(playwright, executable))
        shoot(pages, position / "inspection.html", INSPECTION)
        shoot(pages, position / "run.html", RUN)
        pages.close()


if __name__ == "__main__":
    main()
