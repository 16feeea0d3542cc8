"""The benchmarks' transactions: valid, seeded, distributed as they say."""

from __future__ import annotations

import msgspec
import numpy as np
import pytest

from bench.workload import BALANCE, DISTRIBUTIONS, Bank, Workload, Zipf, funding
from streamydb.records import Transaction, decode


def transactions(workload: Workload, count: int = 500, first: int = 7) -> list[Transaction]:
    found = [decode(payload) for payload in workload.payloads(first, count)]
    assert all(isinstance(one, Transaction) for one in found)
    return [one for one in found if isinstance(one, Transaction)]


@pytest.mark.parametrize("distribution", DISTRIBUTIONS)
def test_transfers_are_valid_transactions_that_keep_the_sum(distribution: str) -> None:
    found = transactions(Bank(50, distribution))
    assert [one.id for one in found] == [f"t{number}" for number in range(7, 507)]
    for one in found:
        source, target = msgspec.to_builtins(one.updates)
        assert source["key"] != target["key"]
        assert (source["by"], target["by"], source["min"]) == (-1, 1, 0)


@pytest.mark.parametrize("distribution", DISTRIBUTIONS)
def test_the_same_seed_makes_the_same_transfers(distribution: str) -> None:
    first, again, other = (Bank(50, distribution, seed).payloads(0, 200) for seed in (3, 3, 4))
    assert first == again
    assert first != other


def test_the_hot_pair_is_two_accounts_in_both_directions() -> None:
    source, target = Bank(1000, "hotpair").pairs(100)
    assert set(zip(source, target, strict=True)) == {(0, 1), (1, 0)}


def test_zipf_prefers_few_keys_and_uniform_none() -> None:
    def busiest(distribution: str) -> float:
        source, target = Bank(1000, distribution).pairs(20_000)
        return float(np.bincount(source + target).max()) / 40_000

    assert busiest("uniform") < 0.005
    assert 0.1 < busiest("zipf") < 0.2


def test_zipf_draws_the_exact_distribution() -> None:
    drawn = Zipf(4, 1.0, np.random.default_rng(1)).draw(100_000)
    shares = np.sort(np.bincount(drawn, minlength=4) / len(drawn))[::-1]
    expected = np.array([1, 1 / 2, 1 / 3, 1 / 4]) / (25 / 12)
    np.testing.assert_allclose(shares, expected, atol=0.01)


def test_funding_puts_every_account_once() -> None:
    payloads = list(funding(10, 120, b"%d" % BALANCE, first_id=3))
    found = [decode(payload) for payload in payloads]
    keys = [u.key for one in found if isinstance(one, Transaction) for u in one.updates]
    assert keys == [f"acct/{number}" for number in range(10, 130)]
    assert [one.id for one in found if isinstance(one, Transaction)] == ["t3", "t4", "t5"]


@pytest.mark.parametrize(("accounts", "distribution"), [(1, "uniform"), (10, "normal")])
def test_nonsense_is_refused(accounts: int, distribution: str) -> None:
    with pytest.raises(ValueError, match=r"accounts|none of"):
        Bank(accounts, distribution)
