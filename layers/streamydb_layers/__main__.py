"""Print the files of the procedures that come with the layers, to deploy them."""

from __future__ import annotations

import sys

from streamydb_layers.deployment import module_files

if __name__ == "__main__":
    sys.stdout.write("".join(f"{path}\n" for path in module_files()))
