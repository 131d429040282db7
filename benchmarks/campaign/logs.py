"""Logs with changed bytes: each is read or refused, and nothing in it is read as something else."""

import json
import warnings
from pathlib import Path
from random import Random

import polars as pl

from benchmarks.campaign.case import Kind, LostError, Outcome, mutated
from benchmarks.campaign.material import log
from marsrec.data.log import LogSettings, read_log
from marsrec.errors import MarsrecError


class Logs(Kind):
    name = "logs"
    share = 2.0

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        frame = log(users=6, events=5)
        parquet = folder / "log.parquet"
        frame.write_parquet(parquet)
        inter = frame.rename({"user": "user_id:token", "item": "item_id:token", "time": "timestamp:float"})
        dates = frame.with_columns(pl.from_epoch("time").dt.to_string("%Y-%m-%d %H:%M:%S"))
        self.forms = {
            "log.csv": frame.write_csv().encode(),
            "dates.csv": dates.write_csv(separator=";").encode(),
            "log.jsonl": frame.write_ndjson().encode(),
            "nested.jsonl": "".join(
                json.dumps({**row, "more": {"tags": [1, None, True]}}) + "\n" for row in frame.to_dicts()
            ).encode(),
            "log.inter": inter.write_csv(separator="\t").encode(),
            "log.parquet": parquet.read_bytes(),
        }

    def run(self, chance: Random, place: Path) -> Outcome:
        name = chance.choice(list(self.forms))
        data = mutated(self.forms[name], chance)
        drop = chance.random() < 0.3
        (place / name).write_bytes(data)
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                read = read_log(place / name, LogSettings(drop_bad_rows=drop)).frame
        except MarsrecError as error:
            if name not in str(error):
                raise LostError(f"the message does not name the file: {error}") from error
            return "refused"
        if read.null_count().sum_horizontal().sum() or read.columns[:3] != ["user", "item", "time"]:
            raise LostError(f"{name}: values are missing from what was read")
        for column in ("user", "item"):
            if read[column].dtype == pl.String and read[column].str.contains(r"^[\r\n]|[\r\n]$|^$").any():
                if b'"' in data or name.endswith(".parquet"):
                    continue  # quoted, or as it was written
                raise LostError(f"{name}: a line end stands at the edge of an id")
        lines = [line for line in data.split(b"\n") if line.strip(b" \t\0")]
        if not drop and name.endswith(".csv") and b'"' not in data and len(lines) - 1 > len(read):
            raise LostError(f"{name}: {len(lines) - 1} rows, of which {len(read)} were read")
        return "answered"
