"""Draw a run over time: `python -m bench.plot run.json run.svg` (no library needed).

`run.json`: from `streamydb bench bank --sustain ...`, `streamydb bench soak` or `streamydb bench
shifting`, with --output.
"""

from __future__ import annotations

import json
import math
import sys
from itertools import groupby
from pathlib import Path
from typing import Any

WIDTH, HEIGHT, LEFT, GAP = 720, 120, 90, 34
SERIES = {
    "offered_per_s": "offered, transactions/s",
    "done_per_s": "done, transactions/s",
    "backlog": "backlog, transactions",
    "p99_ms": "latency p99, ms",
    "rss_mb": "memory, MB",
    "state_mb": "state on disk, MB",
    "batch_ms": "micro-batch, ms",
    "handles": "open files of the pipeline's processes",
    "checkpoint_mb": "checkpoint, MB",
    "topics_mb": "all topics, MB",
    "cpu_percent": "processor time of the pipeline, % of a core",
    "stolen_percent": "processor time that the host gave to others, %",
}
SHIFTING = {  # of a shifting run, over decades
    "offered_per_s": "due, transactions/s",
    "done_per_s": "answered, transactions/s",
    "p50_ms": "latency p50 by the time of being due, ms",
    "p99_ms": "latency p99, ms",
    "max_ms": "largest latency, ms",
}

GEARS = {"real-time": "#dff0d8", "micro-batch": "#e8e8f4"}
"""Ground while a gear leads."""


def chart(
    rows: list[dict[str, Any]], name: str, title: str, top: int, *, decades: bool = False
) -> list[str]:
    """SVG elements of one series over time, from 0 to its largest value, or in decades from 1."""
    points = [(row["to_s"], row[name]) for row in rows if row.get(name) is not None]
    if not points:
        return []
    end, high = rows[-1]["to_s"], max(1e-9, *(value for _, value in points), 0)
    high = 10.0 ** math.ceil(math.log10(max(10.0, high))) if decades else high
    width = WIDTH - LEFT - 10

    def share(value: float) -> float:
        return math.log10(max(1.0, value)) / math.log10(high) if decades else value / high

    path = " ".join(
        f"{LEFT + width * at / end:.1f},{top + HEIGHT * (1 - share(value)):.1f}"
        for at, value in points
    )
    size = f'width="{width}" height="{HEIGHT}"'
    frame = f'<rect x="{LEFT}" y="{top}" {size} fill="none" stroke="#bbb"/>'
    least = "1" if decades else "0"
    return [
        frame,
        f'<polyline points="{path}" fill="none" stroke="#1f77b4" stroke-width="1.5"/>',
        f'<text x="{LEFT}" y="{top - 5}">{title}</text>',
        f'<text x="{LEFT - 6}" y="{top + 10}" text-anchor="end">{high:,.0f}</text>',
        f'<text x="{LEFT - 6}" y="{top + HEIGHT}" text-anchor="end">{least}</text>',
    ]


def grounds(rows: list[dict[str, Any]], top: int) -> list[str]:
    """SVG elements that tell which gear led when; none if the rows do not say it."""
    end, width, found, begun = rows[-1]["to_s"], WIDTH - LEFT - 10, [], 0.0
    for gear, group in groupby(rows, lambda row: row.get("gear")):
        until = list(group)[-1]["to_s"]
        if gear in GEARS:
            x, wide = LEFT + width * begun / end, width * (until - begun) / end
            place = f'x="{x:.1f}" y="{top}" width="{wide:.1f}" height="{HEIGHT}"'
            found.append(f'<rect {place} fill="{GEARS[gear]}"/>')
        begun = until
    return found


def legend() -> list[str]:
    """SVG elements that explain the grounds."""
    found = []
    for number, (gear, colour) in enumerate(GEARS.items()):
        x = LEFT + 300 + number * 170
        found.append(f'<rect x="{x}" y="4" width="14" height="12" fill="{colour}" stroke="#bbb"/>')
        found.append(f'<text x="{x + 20}" y="14">{gear} gear leads</text>')
    return found


def picture(answer: dict[str, Any]) -> str:
    """The whole SVG.

    Raises:
        KeyError: the answer is not of a run over time.
    """
    shifting = "points" in answer
    rows = answer["points"] if shifting else answer["sustained"]["intervals"]
    series = SHIFTING if shifting else SERIES
    parts: list[str] = legend() if shifting else []
    for number, (name, title) in enumerate(series.items()):
        top = GAP + number * (HEIGHT + GAP)
        parts += grounds(rows, top) + chart(rows, name, title, top, decades=shifting)
    height = GAP + len(series) * (HEIGHT + GAP)
    bottom = f'<text x="{WIDTH - 10}" y="{height - 12}" text-anchor="end">'
    parts.append(f"{bottom}{rows[-1]['to_s']:,.0f} s</text>")
    head = f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{height}"'
    ground = '<rect width="100%" height="100%" fill="#fff"/>'
    begun = f'{head} font-family="sans-serif" font-size="12">'
    return "\n".join([begun, ground, *parts, "</svg>"]) + "\n"


def main(arguments: list[str]) -> int:
    """Read the JSON, write the SVG."""
    if len(arguments) != 2:
        print("usage: python -m bench.plot RUN.json PICTURE.svg", file=sys.stderr)
        return 2
    source, target = (Path(argument) for argument in arguments)
    answer = json.loads(source.read_text(encoding="utf-8"))
    if not {"sustained", "points"} & answer.keys():
        told = f"{source} is not of a run over time (bank --sustain, soak, shifting)"
        print(told, file=sys.stderr)
        return 2
    target.write_text(picture(answer), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
