"""Every production module that can change an outcome is executed by a randomized test."""

from __future__ import annotations

from tools import proof


def test_every_module_is_executed_by_a_randomized_test_or_has_a_reason() -> None:
    assert proof.missing(proof.read()) == [], "write a randomized test; then `make proof`"


def test_every_reason_is_needed() -> None:
    found = proof.read()
    unproven = [module for module in proof.every() if module not in found]
    idle = [name for name in proof.REASONS if not any(
        module == name or module.startswith(f"{name}.") for module in unproven
    )]  # fmt: skip
    assert idle == [], "executed by now, or gone"


def test_the_tests_of_the_table_are_there() -> None:
    for test in {test for tests in proof.read().values() for test in tests}:
        file, _, function = test.partition("::")
        text = (proof.ROOT / "tests" / file).read_text("utf-8")
        assert f"def {function.rpartition('::')[2]}(" in text, f"{test} is gone: `make proof`"


def test_the_page_is_what_was_recorded() -> None:
    assert proof.table(proof.read()) in proof.PAGE.read_text("utf-8"), "make proof"
