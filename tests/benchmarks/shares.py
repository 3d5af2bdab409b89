"""Shares with their intervals, and tables of them."""

import math


def interval(successes: int, trials: int) -> tuple[float, float]:
    """Return Wilson's interval of a share at 95 %."""
    if not trials:
        return 0.0, 1.0
    z = 1.959964
    share = successes / trials
    centre = share + z * z / (2 * trials)
    half = z * math.sqrt(share * (1 - share) / trials + z * z / (4 * trials * trials))
    scale = 1 + z * z / trials
    return max(0.0, (centre - half) / scale), min(1.0, (centre + half) / scale)


def share(successes: int, trials: int) -> str:
    """Write a share with its interval, as `9/10 (60-98 %)`."""
    if not trials:
        return "-"
    low, high = interval(successes, trials)
    return f"{successes}/{trials} ({low * 100:.0f}-{high * 100:.0f} %)"


def markdown(table: list[list[str]]) -> str:
    """Write a table in Markdown."""
    head, *rows = table
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines) + "\n"
