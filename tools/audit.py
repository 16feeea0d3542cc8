"""`make audit`: look every pinned package up in a database of known vulnerabilities.

Exit codes: 0 nothing is known against any of them; 1 something is, and it is listed; 2 the service
could not be asked about some or all: then nothing is known, which is not the same as nothing found.

    python tools/audit.py [constraints.txt]
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

__all__ = ["judge", "main"]

SERVICES = ("pypi", "osv")
"""Asked in this order until one knows all packages; OSV has the same advisories and more."""


def judge(report: dict[str, Any]) -> tuple[int, str]:
    """Exit code and text for a report of pip-audit."""
    found, unknown = [], []
    packages = report["dependencies"]
    for package in packages:
        if "skip_reason" in package:
            unknown.append(package["name"])
        for flaw in package.get("vulns", []):
            fixed = ", ".join(flaw["fix_versions"]) or "no release"
            found.append(f"{package['name']} {package['version']}: {flaw['id']}, fixed in {fixed}")
    if found:
        return 1, "\n".join([f"{len(found)} known vulnerabilities:", *found])
    if unknown or not packages:
        shown = ", ".join(unknown[:5]) + (", ..." if len(unknown) > 5 else "")
        return 2, (
            f"NOT AUDITED: {len(unknown)} of {len(packages)} packages could not be looked up "
            f"({shown}). Nothing is known about them. Is the vulnerability service within reach?"
        )
    return 0, f"{len(packages)} packages, no known vulnerability"


def main(file: Path) -> int:
    """Audit; print what was found; the exit code."""
    code, text = 2, ""
    for service in SERVICES:
        command = [
            sys.executable, "-m", "pip_audit", "--requirement", str(file), "--no-deps",
            "--disable-pip", "--format", "json", "--progress-spinner", "off",
            "--vulnerability-service", service, "--timeout", "15",
        ]  # fmt: skip
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        try:
            code, text = judge(json.loads(done.stdout))
        except (ValueError, KeyError):
            last = done.stderr.strip().splitlines()[-1:] or ["no answer"]
            code, text = 2, f"NOT AUDITED: the service {service} does not answer: {last[0][:300]}"
        if code != 2:
            break
    sys.stdout.write(f"{text}\n")
    return code


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1] if len(sys.argv) > 1 else "constraints.txt")))
