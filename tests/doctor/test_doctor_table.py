"""The doctor on one engine of each kind. `DOCTOR_TABLE=all pytest tests/doctor/test_doctor_table.py` examines
all of them in some minutes and writes the table in docs/doctor.md anew."""

import asyncio
import os
import re
import shutil
import time
from pathlib import Path

import pytest
from doctor_table import QUICK, Case, cases, examined, row

PAGE = Path(__file__).parents[2] / "docs" / "doctor.md"
ALL = os.environ.get("DOCTOR_TABLE") == "all"
AT_ONCE = 8
HEAD = "| engine | load | jitter | answers | found | kind | confidence | requests | seconds |\n|" + "---|" * 9


async def examine_all(chosen: list[Case], directory: Path) -> list[tuple[Case, str, str]]:
    """Each case's row, and what is wrong with it, if anything."""
    turn = asyncio.Semaphore(AT_ONCE)

    async def one(case: Case) -> tuple[Case, str, str]:
        async with turn:
            began = time.monotonic()
            report = await examined(case, directory)
            found = (report.verdict.kind.value, report.verdict.limit)
            wrong = "" if found == (case.kind, case.limit) else f"{case.name}: {report.verdict}"
            return case, row(case, report, time.monotonic() - began), wrong

    return list(await asyncio.gather(*map(one, chosen)))


def with_haproxy(chosen: list[Case]) -> list[Case]:
    there = shutil.which("haproxy") is not None
    return [case for case in chosen if there or case.front is None]


@pytest.mark.skipif(ALL, reason="all of them are examined")
async def test_the_right_number_and_kind_are_found(tmp_path: Path):
    done = await examine_all(with_haproxy(QUICK), tmp_path)
    assert [wrong for _, _, wrong in done if wrong] == []


def test_the_page_shows_every_engine_with_the_right_number_and_kind():
    rows = re.findall(r"^\| (.+? \| .+? \| \d+% \| .+?) \| (.+?) \| (\w+) \|", PAGE.read_text(), re.MULTILINE)
    shown = {name: (limit, kind) for name, limit, kind in rows}
    for case in cases():
        limit, kind = shown[case.name]
        assert kind == case.kind, case.name
        if case.kind != "rate":
            assert limit == ("none" if case.limit is None else str(case.limit)), case.name
    assert len(shown) == len(list(cases()))


@pytest.mark.skipif(not ALL, reason="DOCTOR_TABLE=all writes the table anew")
@pytest.mark.timeout(3600)
async def test_the_table_is_written(tmp_path: Path):
    done = await examine_all(list(cases()), tmp_path)
    table = "\n".join([HEAD, *(shown for _, shown, _ in done)])
    text = PAGE.read_text()
    start, end = "<!-- table -->\n", "<!-- end of table -->"
    before, _, rest = text.partition(start)
    PAGE.write_text(before + start + table + "\n" + end + rest.partition(end)[2])
    assert [wrong for _, _, wrong in done if wrong] == []
