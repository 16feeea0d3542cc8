"""Print what both distributions require, one a line: `python tools/requirements.py [extra ...]`.

pip installs a package only together with what it requires; this names the latter alone, without
spaces, so that a shell may take it for arguments.
"""

from __future__ import annotations

import configparser
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
SETUPS = (ROOT / "setup.cfg", ROOT / "layers" / "setup.cfg")


def requirements(extras: list[str]) -> list[str]:
    """The requirements of the packages and of extras, without spaces and without themselves.

    Raises:
        KeyError: neither has such an extra.
    """
    texts: list[str] = []
    known: set[str] = set()
    for file in SETUPS:
        setup = configparser.ConfigParser(interpolation=None)
        setup.read(file, encoding="utf-8")
        offered = setup["options.extras_require"]
        known |= set(offered)
        texts.append(setup["options"]["install_requires"])
        texts += [offered[extra] for extra in extras if extra in offered]
    if unknown := set(extras) - known:
        raise KeyError(*unknown)
    lines = [line.strip() for text in texts for line in text.splitlines()]
    found = ["".join(line.split()) for line in lines if line and not line.startswith("#")]
    return list(dict.fromkeys(line for line in found if not line.startswith("streamydb")))


if __name__ == "__main__":
    print("\n".join(requirements(sys.argv[1:])))
