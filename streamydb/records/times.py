"""Times of records as messages show them to people."""

from __future__ import annotations

from typing import Final

_DAY_MS: Final = 86_400_000
_END_MS: Final = 253_402_300_800_000
"""The end of the year 9999."""


def moment(time_ms: int) -> str:
    """Return a time since 1970 for people, in UTC; one that no calendar has, as it is."""
    if not 0 <= time_ms < _END_MS:
        return f"{time_ms} ms after 1970"
    days, of_day_ms = divmod(time_ms, _DAY_MS)
    seconds, ms = divmod(of_day_ms, 1_000)
    minutes, second = divmod(seconds, 60)
    hour, minute = divmod(minutes, 60)
    return f"{_date(days)}T{hour:02}:{minute:02}:{second:02}.{ms:03}Z"


def _date(days: int) -> str:
    """The date of a day since 1970: Hinnant, chrono-compatible low-level date algorithms."""
    era, day_of_era = divmod(days + 719_468, 146_097)
    leaps = day_of_era // 1_460 - day_of_era // 36_524 + day_of_era // 146_096
    year_of_era = (day_of_era - leaps) // 365
    day_of_year = day_of_era - (365 * year_of_era + year_of_era // 4 - year_of_era // 100)
    march = (5 * day_of_year + 2) // 153  # months since March
    day = day_of_year - (153 * march + 2) // 5 + 1
    month = march + 3 if march < 10 else march - 9
    year = year_of_era + 400 * era + (month <= 2)
    return f"{year:04}-{month:02}-{day:02}"


def duration(time_ms: int) -> str:
    """Return a length of time for people, as hours, minutes and seconds."""
    minutes, seconds = divmod(abs(time_ms) / 1_000, 60)
    hours, minutes = divmod(int(minutes), 60)
    parts = [f"{hours} h"] * (hours > 0) + [f"{minutes} min"] * (hours + minutes > 0)
    return " ".join([*parts, f"{seconds:.0f} s" if parts else f"{seconds:g} s"])


def clocks_told(whose: str, clock_ms: int, commit_ms: int) -> str:
    """Say what a clock and a commit time were at one moment, and how far they are apart.

    ``whose``: as "this machine's".
    """
    ahead_ms = clock_ms - commit_ms
    side = "ahead of" if ahead_ms > 0 else "behind"
    return (
        f"The commit time was {moment(commit_ms)} when {whose} clock said {moment(clock_ms)}: "
        f"{duration(ahead_ms)} {side} it."
    )
