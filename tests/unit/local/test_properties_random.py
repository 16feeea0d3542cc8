"""Properties are read as `java.util.Properties` reads them, whatever is in the file."""

from __future__ import annotations

import json
import random
import subprocess
from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from streamydb.errors import ConfigurationError
from streamydb.local.broker.config import parse_properties, server_properties
from streamydb.local.java import find_java
from streamydb.local.resources import shipped_file, spark_defaults
from tests.support.seeds import ASKED_FOR, seeds

PROGRAM = r"""
import java.io.*;
import java.util.*;

class Reads {
    public static void main(String[] arguments) throws Exception {
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in, "US-ASCII"));
        StringBuilder out = new StringBuilder();
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            Properties found = new Properties();
            try {
                found.load(new StringReader(plain(line)));
            } catch (IllegalArgumentException wrong) {
                out.append("refused\n");
                continue;
            }
            for (String name : new TreeSet<>(found.stringPropertyNames()))
                out.append(hex(name)).append('=').append(hex(found.getProperty(name))).append(' ');
            out.append('\n');
        }
        System.out.print(out);
    }

    static String plain(String hex) {
        StringBuilder out = new StringBuilder();
        for (int at = 0; at < hex.length(); at += 4)
            out.append((char) Integer.parseInt(hex.substring(at, at + 4), 16));
        return out.toString();
    }

    static String hex(String plain) {
        StringBuilder out = new StringBuilder();
        for (char each : plain.toCharArray()) out.append(String.format("%04x", (int) each));
        return out.toString();
    }
}
"""
PIECES = ["\\", "\\", "\n", "\r", "\r\n", "=", ":", " ", "\t", "\f", "#", "!", "a", "n", "u", "é",
          "\\u00e9", "\\u0020", "\\ud83d\\ude00", "\\u12", "b", "\0", "\v", "\x85"]  # fmt: skip
ANSWERS: list[tuple[str, dict[str, str] | None]] = [
    ("\\", {"": ""}),
    ("\\\n", {"": ""}),
    ("a=b\\", {"a": "b"}),
    ("\\\n#c=1", {}),
    ("\\\n\n#c=1", {}),
    ("a\\\n#b", {"a#b": ""}),
    ("#a\\\nb=c", {"b": "c"}),
    (" \t!a\nb c", {"b": "c"}),
    ("a\\\r\n  b=c", {"ab": "c"}),
    ("a\\u12=b", None),
    ("C:\\users", None),
    ("a=\\u00e9\\ud83d\\ude00", {"a": "\xe9\U0001f600"}),
    ("a\\\\u=b", {"a\\u": "b"}),
    ("\\u0020a=b", {" a": "b"}),
    ("a\\=b\\:c=d", {"a=b:c": "d"}),
    ("a = = b", {"a": "= b"}),
    ("a\\\\\\\nb", {"a\\b": ""}),
    ("=b", {"": "b"}),
    ("a\x0bb\x85c", {"a\x0bb\x85c": ""}),
    ("a=\\q\\n\\", {"a": "q\n"}),
    ("a\x0cb", {"a": "b"}),
    ("a\\ b  c ", {"a b": "c "}),
    ("a=1\ra=2", {"a": "2"}),
    ("\\u0023a=b", {"#a": "b"}),
]
"""What Java 17 answered; None: it refused."""


def drawn(seed: int) -> str:
    """A text of what matters in such files."""
    dice = random.Random(f"properties {seed}")
    return "".join(dice.choices(PIECES, k=dice.randint(0, 14)))


def read(text: str) -> dict[str, str] | None:
    """As we read it; None: it is refused."""
    try:
        return parse_properties(text)
    except ConfigurationError:
        return None


def named(found: dict[str, str] | None) -> dict[str, str] | None:
    """Without the empty name, which Java also finds where a file ends with a lone backslash."""
    return None if found is None else {n: value for n, value in found.items() if n}


def answers_of_java(texts: list[str], folder: Path) -> list[dict[str, str] | None]:
    """As Java reads them."""
    program = folder / "Reads.java"
    program.write_text(PROGRAM, "ascii")
    told = "".join(f"{text.encode('utf-16-be').hex()}\n" for text in texts)
    done = subprocess.run(
        [str(find_java().path), str(program)],
        input=told,
        capture_output=True,
        text=True,
        check=True,
    )
    return [None if line == "refused" else _pairs(line) for line in done.stdout.split("\n")[:-1]]


def _pairs(line: str) -> dict[str, str]:
    pairs = [pair.split("=") for pair in line.split()]
    return {_plain(name): _plain(value) for name, value in pairs}


def _plain(text: str) -> str:
    return bytes.fromhex(text).decode("utf-16-be", "replace")


@pytest.mark.long
@pytest.mark.randomized
def test_whatever_the_file_it_is_read_as_java_reads_it(tmp_path: Path) -> None:
    texts = [drawn(seed) for seed in range(100 * ASKED_FOR)]
    texts += [text for text, _ in ANSWERS]
    table = dict(ANSWERS)
    texts.append(shipped_file("spark-defaults.conf").read_text("utf-8"))
    for text, answer in zip(texts, answers_of_java(texts, tmp_path), strict=True):
        assert named(read(text)) == named(answer), json.dumps(text)
        assert text not in table or table[text] == answer


@pytest.mark.parametrize(("text", "answer"), ANSWERS, ids=lambda each: repr(each)[:40])
def test_what_java_answered(text: str, answer: dict[str, str] | None) -> None:
    assert named(read(text)) == named(answer)


def test_the_settings_of_spark_are_read_as_properties() -> None:
    assert spark_defaults() == parse_properties(shipped_file("spark-defaults.conf").read_text())


TEXTS = st.text(st.characters(codec="utf-8"), max_size=12)


@settings(max_examples=seeds(50), deadline=None)
@given(st.dictionaries(TEXTS, TEXTS, max_size=3))
@example({"a\\ b": "c", "#\\:": " "})
def test_names_and_values_are_read_back_as_they_were_written(extra: dict[str, str]) -> None:
    written = server_properties(Path("data"), 1, 2, extra)
    assert parse_properties(written).items() >= extra.items()
