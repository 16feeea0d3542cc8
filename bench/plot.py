"""Draw a sustained run: `python -m bench.plot run.json run.svg` (no library needed).

`run.json`: from `streamydb bench bank --sustain ...` or `streamydb bench soak`, with --output.
"""

from __future__ import annotations

import json
import sys
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


def chart(rows: list[dict[str, Any]], name: str, title: str, top: int) -> list[str]:
    """SVG elements of one series over time, from 0 to its largest value."""
    points = [(row["to_s"], row[name]) for row in rows if row.get(name) is not None]
    if not points:
        return []
    end, high = rows[-1]["to_s"], max(1e-9, *(value for _, value in points), 0)
    width = WIDTH - LEFT - 10
    path = " ".join(
        f"{LEFT + width * at / end:.1f},{top + HEIGHT * (1 - value / high):.1f}"
        for at, value in points
    )
    size = f'width="{width}" height="{HEIGHT}"'
    frame = f'<rect x="{LEFT}" y="{top}" {size} fill="none" stroke="#bbb"/>'
    return [
        frame,
        f'<polyline points="{path}" fill="none" stroke="#1f77b4" stroke-width="1.5"/>',
        f'<text x="{LEFT}" y="{top - 5}">{title}</text>',
        f'<text x="{LEFT - 6}" y="{top + 10}" text-anchor="end">{high:,.0f}</text>',
        f'<text x="{LEFT - 6}" y="{top + HEIGHT}" text-anchor="end">0</text>',
    ]


def picture(answer: dict[str, Any]) -> str:
    """The whole SVG.

    Raises:
        KeyError: the answer is not of a sustained run.
    """
    rows = answer["sustained"]["intervals"]
    parts: list[str] = []
    for number, (name, title) in enumerate(SERIES.items()):
        parts += chart(rows, name, title, GAP + number * (HEIGHT + GAP))
    height = GAP + len(SERIES) * (HEIGHT + GAP)
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
    if "sustained" not in answer:
        print(f"{source} is not of a sustained run (bank --sustain, soak)", file=sys.stderr)
        return 2
    target.write_text(picture(answer), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
