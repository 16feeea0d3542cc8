"""The audit never calls silence a clean bill, and the bill of materials is whole and valid."""

from __future__ import annotations

import hashlib
import json
import re
from pathlib import Path
from typing import Any

import pytest
from packaging.requirements import Requirement

from tools.audit import judge

SOURCES = Path(__file__).resolve().parents[3]
CLEAN = {"name": "a", "version": "1", "vulns": []}
FLAWED = {"name": "b", "version": "1", "vulns": [{"id": "CVE-1", "fix_versions": ["2"]}]}
UNKNOWN = {"name": "c", "skip_reason": "not found"}


@pytest.mark.parametrize(
    ("packages", "code", "said"),
    [
        ([CLEAN, CLEAN], 0, "2 packages, no known"),
        ([CLEAN, FLAWED, UNKNOWN], 1, "b 1: CVE-1, fixed in 2"),
        ([CLEAN, UNKNOWN], 2, "NOT AUDITED: 1 of 2"),
        ([UNKNOWN], 2, "NOT AUDITED"),
        ([], 2, "NOT AUDITED"),
    ],
)
def test_audit(packages: list[dict[str, Any]], code: int, said: str) -> None:
    found, text = judge({"dependencies": packages})
    assert found == code
    assert said in text


@pytest.fixture(scope="module")
def bill() -> Any:
    """The bill of this environment, and what it was made from."""
    from streamydb.local import jars
    from tools import sbom

    if any(
        jars.cached(conf) is None or not (jars.cache_folder() / "ivy").exists()
        for conf in jars.CONFIGURATIONS
    ):
        pytest.skip("the jars are not fetched yet (`make jars`)")
    text = sbom.bill()
    assert text == sbom.bill(), "the same inputs give the same bytes"
    return json.loads(text)


@pytest.mark.kafka
def test_the_bill_is_valid_cyclonedx(bill: Any) -> None:
    from cyclonedx.schema import SchemaVersion
    from cyclonedx.validation.json import JsonStrictValidator

    assert JsonStrictValidator(SchemaVersion.V1_6).validate_str(json.dumps(bill)) is None


@pytest.mark.kafka
def test_the_bill_lists_every_jar_with_its_digest(bill: Any) -> None:
    from streamydb.local import jars

    listed = {
        f"{each['name']}-{each['version']}.jar": each["hashes"][0]["content"]
        for each in bill["components"]
        if each["purl"].startswith("pkg:maven/")
    }
    files = {file.name: file for conf in jars.CONFIGURATIONS for file in jars.resolve(conf)}
    assert listed.keys() == files.keys()
    name = min(files)
    assert listed[name] == hashlib.sha256(files[name].read_bytes()).hexdigest()


@pytest.mark.kafka
def test_the_bill_lists_pinned_packages_only(bill: Any) -> None:
    lines = (SOURCES / "constraints.txt").read_text().splitlines()
    wanted = [Requirement(line) for line in lines if line and not line.startswith("#")]
    known = {
        re.sub(r"[-_.]+", "-", each.name).lower(): str(each.specifier).removeprefix("==")
        for each in wanted
        if each.marker is None or each.marker.evaluate()
    }
    listed = {
        each["name"]: each["version"]
        for each in bill["components"]
        if each["purl"].startswith("pkg:pypi/")
    }
    assert {"pyspark", "confluent-kafka", "uvicorn", "lmdb", "py4j"} <= listed.keys()
    assert not {"pytest", "selenium", "pip-audit"} & listed.keys()
    assert {name: known.get(name) for name in listed} == listed
