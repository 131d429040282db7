"""A few cases of the campaign, with a fixed seed, and what it makes of failures."""

from pathlib import Path
from random import Random

import pytest
from benchmarks.campaign import __main__ as campaign
from benchmarks.campaign.case import Kind, LostError, Outcome
from benchmarks.campaign.folders import Folders
from benchmarks.campaign.logs import Logs


@pytest.mark.filterwarnings("ignore")
def test_logs_and_folders_for_some_seconds() -> None:
    counts = campaign.campaign(seed=2, seconds=0, chosen=(Logs, Folders), least=15)
    for ends in counts.values():
        assert ends["refused"] > 0
        assert (ends["lost"], ends["other"]) == (0, 0)


class Failing(Kind):
    name = "failing"

    def run(self, chance: Random, place: Path) -> Outcome:
        match chance.randrange(4):
            case 0:
                raise LostError("an event is gone")
            case 1:
                raise ZeroDivisionError
            case 2:
                return "refused"
        return "answered"


def test_failures_are_counted_and_can_be_repeated(capsys: pytest.CaptureFixture[str]) -> None:
    counts = campaign.campaign(seed=7, seconds=0, chosen=(Failing,), least=40)
    told = capsys.readouterr().out
    ends = counts["failing"]
    assert min(ends.values()) > 0
    assert told.count("lost: --only 'failing'") == ends["lost"]
    assert told.count("other: --only 'failing'") == ends["other"]
    line = next(line for line in told.splitlines() if line.startswith("lost:"))
    number = int(line.partition("--case ")[2].split()[0])
    again = campaign.campaign(seed=7, seconds=0, chosen=(Failing,), case=number)
    assert again["failing"] == {"refused": 0, "answered": 0, "lost": 1, "other": 0}


def test_the_table() -> None:
    ends = {"refused": 1000, "answered": 2, "lost": 0, "other": 1}
    assert campaign.table({"logs": ends, "folders": ends}).splitlines()[2:] == [
        "| logs | 1,003 | 1,000 | 2 | 0 | 1 |",
        "| folders | 1,003 | 1,000 | 2 | 0 | 1 |",
        "| together | 2,006 | 2,000 | 4 | 0 | 2 |",
    ]
