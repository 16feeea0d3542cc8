"""The proof of the balances against a plain one, which reads record by record."""

from __future__ import annotations

import random
import re
from collections import Counter
from collections.abc import Iterable
from dataclasses import replace

import pytest

from bench import proof
from bench.errors import BenchError
from bench.proof import Ledger, Verdicts, ledger_of, read_changes, read_results, verdicts_of
from streamydb.kafka.changes import FetchedRecords, KafkaSource
from streamydb.kafka.columns import OneRecord, RecordColumns
from tests.support.memory_kafka import CONNECTION, MemoryKafka, Partition
from tests.support.seeds import seeds

Record = tuple[bytes | None, bytes | None]

TOPIC = "bank.changes"
BALANCES = (0, 1, -1, 7, 10**17, 10**18, -(10**18), 2**63 - 1, -(2**63))
PLAIN = re.compile(
    rb'^\{"op":"[cu]","before":(?:null|-?\d+),"after":(-?\d+),.*?"seq":(\d+)\},"transaction":'
)


def plain_ledger(records: Iterable[Record], prefix: bytes) -> Ledger:
    last: dict[bytes, tuple[int, int]] = {}
    ledger = Ledger()
    for key, value in records:
        if key is None or not key.startswith(prefix):
            continue
        text = value or b"null"
        found = PLAIN.match(text)
        if found is None:
            ledger.unreadable.append(text[:200].decode(errors="replace"))
            continue
        balance, seq = int(found[1]), int(found[2])
        ledger.changes += 1
        ledger.least = balance if ledger.least is None else min(ledger.least, balance)
        if key not in last or last[key][0] <= seq:
            last[key] = seq, balance
    ledger.accounts = len(last)
    ledger.total = sum(balance for _, balance in last.values())
    return ledger


def plain_verdicts(values: Iterable[bytes | None], prefix: bytes, expected: int) -> Verdicts:
    pattern = re.compile(rb'^\{"id":"' + re.escape(prefix) + rb'(\d+)",.*?"status":"(\w+)"')
    found = [match for value in values if (match := pattern.match(value or b"")) is not None]
    statuses = Counter(match[2].decode() for match in found)
    answered = len({int(match[1]) for match in found if int(match[1]) < expected})
    named = dict(sorted(statuses.items()))
    return Verdicts(expected, answered, len(found) - answered, named)


def change(key: bytes, balance: object, seq: object, op: str = "u", before: str = "5") -> Record:
    origin = '"connector":"streamydb","db":"bank","partition":0,"offset":7'
    text = (
        f'{{"op":"{op}","before":{before},"after":{balance},"ts_ms":1700,"source":{{{origin},'
        f'"seq":{seq}}},"transaction":{{"id":"t1","total_order":0,"data_collection_order":0}}}}'
    )
    return key, text.encode()


def random_key(dice: random.Random) -> bytes | None:
    number = dice.choice([dice.randrange(40), dice.randrange(200_000), 10**8, 10**19])
    forms = [b"acct/%d" % number] * 6
    odd = [b"acct/", b"acct/0%d" % number, b"acct/-1", b"acct/x", b"user/1", b"", None]
    return dice.choice([*forms, *odd])


def random_change(dice: random.Random, seq: int) -> Record:
    key = random_key(dice)
    named = b"" if key is None else key
    before = dice.choice(["null", "5", "-3", "007"])
    plain = change(named, dice.choice(BALANCES), seq, dice.choice("cu"), before)[1] or b""
    wide = plain.replace(b'"seq":', b'"seq":00')
    twice = plain.replace(b'"offset":', b'"seq":x,"offset":')
    odd = [
        None, b"", b"null", change(named, "null", seq, "d")[1], b'{"resolved":4}', wide, twice,
        plain[: dice.randrange(len(plain))], plain.replace(b'"op":"', b'"op":"\xff'),
        change(named, '"text"', seq)[1], change(named, "1.5", seq)[1], plain + b"\n" + plain,
        plain.replace(b',"offset"', b',\n"offset"'), plain.replace(b',"ts_ms"', b' "ts_ms"'),
    ]  # fmt: skip
    return key, dice.choice([*[plain] * 3 * len(odd), *odd])


def random_result(dice: random.Random) -> bytes | None:
    number = dice.choice(["7", "07", "", "x", "1x", "9" * 20, *map(str, range(30))])
    status = dice.choice(["committed"] * 5 + ["aborted", "rejected", "strange", "commit-ted", ""])
    prefix = dice.choice(["t", "t", "t", "u", ""])
    text = (
        f'{{"id":"{prefix}{number}","seq":1,"ts_ms":2,"status":"{status}","reads":{{}},'
        '"failed":[],"code":null,"source":{"partition":0,"offset":3}}'
    )
    cut = dice.choice([len(text)] * 9 + [dice.randrange(len(text))])
    return dice.choice([text[:cut].encode()] * 20 + [None, b"", text.encode() + b"\n"])


def columns(dice: random.Random, records: list[Record]) -> Iterable[RecordColumns]:
    at = 0
    while at < len(records):
        size = dice.choice([1, 5, 100])
        some = records[at : at + size]
        yield RecordColumns.of([OneRecord(0, at, *record) for record in some])
        at += size


@pytest.mark.parametrize("seed", range(seeds(40, 10)))
def test_the_balances_are_those_of_the_plain_form(seed: int) -> None:
    dice = random.Random(f"balances {seed}")
    records = [random_change(dice, dice.randrange(60)) for _ in range(dice.choice([0, 9, 800]))]
    records += dice.choices(records, k=len(records) // 4)  # a crash: some come again
    for prefix in (b"acct/", b"acct/1", b""):
        wanted = plain_ledger(records, prefix)
        del wanted.unreadable[5:]
        assert ledger_of(columns(dice, records), prefix) == wanted


@pytest.mark.parametrize("seed", range(seeds(40, 10)))
def test_the_verdicts_are_those_of_the_plain_form(seed: int) -> None:
    dice = random.Random(f"verdicts {seed}")
    values = [random_result(dice) for _ in range(dice.choice([0, 9, 800]))]
    found = verdicts_of(columns(dice, [(b"t", value) for value in values]), b"t", 20)
    assert found == plain_verdicts(values, b"t", 20)


def test_a_copy_of_an_older_change_behind_a_newer_one_is_not_the_balance() -> None:
    first = change(b"acct/1", 5, 3)
    records = [first, change(b"acct/2", 5, 3), change(b"acct/1", 9, 7), first]
    ledger = ledger_of(columns(random.Random(1), records), b"acct/")
    assert (ledger.accounts, ledger.total, ledger.least, ledger.changes) == (2, 14, 5, 4)


def cluster(dice: random.Random, monkeypatch: pytest.MonkeyPatch) -> MemoryKafka:
    """Be a cluster that knows an id of the topic."""
    kafka = MemoryKafka(dice)
    kafka.install(monkeypatch)
    kafka.ids[TOPIC] = "an id"
    return kafka


def appended(kafka: MemoryKafka, parts: list[Partition], records: Iterable[Record]) -> None:
    """Append records, those of a key to one partition, with gaps behind some."""
    for key, value in records:
        number = len(key or b"") % len(parts)
        kafka.append(TOPIC, number, value, key)
        parts[number].high += kafka.dice.random() < 0.1


@pytest.mark.parametrize("seed", range(seeds(20, 6)))
def test_a_topic_is_read_from_its_starts_to_its_ends(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    dice = random.Random(f"proof {seed}")
    kafka = cluster(dice, monkeypatch)
    parts = kafka.create(TOPIC, dice.randint(1, 3))
    appended(kafka, parts, [random_change(dice, seq) for seq in range(300)])
    parts[0].trim(dice.randrange(20))
    starts = dice.choice([None, {0: dice.randrange(50)}])
    first = starts or {0: 0}
    records = [
        (record.named, record.content)
        for number, part in enumerate(parts)
        for record in part.records
        if record.at >= first.get(number, 0)
    ]
    noted: list[int] = []

    def note(read: int) -> None:
        noted.append(read)
        appended(kafka, parts, [change(b"acct/1", 1, 999)])  # it comes behind the end

    wanted = plain_ledger(records, b"acct/")
    ledger = read_changes(CONNECTION, TOPIC, starts=starts, note=note)
    assert set(ledger.unreadable) <= set(wanted.unreadable)  # partitions come in any order
    assert len(ledger.unreadable) == min(5, len(wanted.unreadable))
    assert replace(ledger, unreadable=[]) == replace(wanted, unreadable=[])
    assert noted[-1] == len(records)
    assert noted == sorted(noted)


def test_the_results_of_several_partitions_are_read(monkeypatch: pytest.MonkeyPatch) -> None:
    kafka = cluster(random.Random("results"), monkeypatch)
    kafka.create(TOPIC, 2)
    values = [random_result(kafka.dice) for _ in range(200)]
    for number, value in enumerate(values):
        kafka.append(TOPIC, number % 2, value, b"t")
    assert read_results(CONNECTION, TOPIC, 20) == plain_verdicts(values, b"t", 20)


def test_a_topic_that_gives_nothing_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    kafka = cluster(random.Random("silent"), monkeypatch)
    kafka.create(TOPIC)[0].high = 1
    silent = FetchedRecords(RecordColumns.of([]), {})
    monkeypatch.setattr(KafkaSource, "fetch", lambda *_: silent)
    monkeypatch.setattr(proof, "_STALL_S_MAX", 0.0)
    with pytest.raises(BenchError, match=TOPIC):
        read_changes(CONNECTION, TOPIC)
