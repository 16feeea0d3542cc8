"""Print what setup.cfg requires, one a line: `python tools/requirements.py [extra ...]`.

pip installs a package only together with what it requires; this names the latter alone, without
spaces, so that a shell may take it for arguments.
"""

from __future__ import annotations

import configparser
import sys
from pathlib import Path

SETUP = Path(__file__).parents[1] / "setup.cfg"


def requirements(extras: list[str]) -> list[str]:
    """The requirements of the package and of extras, without spaces and without itself.

    Raises:
        KeyError: there is no such extra.
    """
    setup = configparser.ConfigParser(interpolation=None)
    setup.read(SETUP, encoding="utf-8")
    texts = [setup["options"]["install_requires"]]
    texts += [setup["options.extras_require"][extra] for extra in extras]
    lines = [line.strip() for text in texts for line in text.splitlines()]
    found = ["".join(line.split()) for line in lines if line and not line.startswith("#")]
    return [line for line in found if not line.startswith("streamydb")]


if __name__ == "__main__":
    print("\n".join(requirements(sys.argv[1:])))
