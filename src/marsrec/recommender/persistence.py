"""A recommender as a folder: weights, settings, items and metrics. Nothing is pickled, and it appears in one step."""

from __future__ import annotations

import glob
import hashlib
import json
import operator
import time
from collections.abc import Mapping
from pathlib import Path, PureWindowsPath
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
import polars as pl
import torch
from polars.exceptions import PanicException
from pydantic import ValidationError
from safetensors.torch import load_file
from safetensors.torch import save as dumped
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from marsrec.atomic import atomic_folder, recover
from marsrec.compute.memory import exhausted
from marsrec.data.histories import Histories, Vocabulary
from marsrec.data.log import LogSettings
from marsrec.data.splits import SplitSettings
from marsrec.errors import DataError, MarsrecError, SettingsError
from marsrec.models import Choice, decisive
from marsrec.nn.parts import Part, UnknownPartError
from marsrec.nn.settings import KINDS, ModelSettings
from marsrec.recommender.card import card
from marsrec.settings import explain_validation
from marsrec.training.settings import TrainingSettings

R = TypeVar("R", bound="Recommender")

if TYPE_CHECKING:
    from marsrec.recommender import Recommender
    from marsrec.recommender.trained import Trained

FORMAT = 1
TRIES = 4
"""How often a folder is read that is replaced meanwhile."""

CONFIG = "config.json"
"""The file by which a saved recommender is recognised."""
WEIGHTS, METRICS, ITEMS, HISTORIES = "model.safetensors", "metrics.json", "items.parquet", "histories"
CARD = "README.md"
"""What people read. It has no checksum: nothing depends on it, and whoever shares a model may add to it."""
FILES = (CONFIG, WEIGHTS, METRICS, ITEMS, CARD)
"""All that a folder holds, beside the histories."""


def save(recommender: Recommender, folder: Path, *, histories: bool) -> None:
    """Write a fitted recommender; see `Recommender.save`."""
    network = recommender.network
    made = {kind: _chosen(getattr(recommender, kind)) for kind in KINDS}
    config = {
        "format": FORMAT,
        "made": {
            "model": recommender.name,
            **made,
            "options": recommender.options,
            "published": recommender.published,
        },
        "kind": recommender.kind,
        "columns": recommender.columns.model_dump(mode="json"),
        "model": recommender.settings.model_dump(mode="json"),
        "origins": recommender.settings.origins,
        "training": recommender.training.model_dump(mode="json"),
        "split": recommender.split_settings.model_dump(mode="json"),
        "items": len(recommender.item_ids),
        "unit": recommender.unit,
        "log_end": recommender.log_end,
    }
    with atomic_folder(folder, marker=CONFIG) as target:
        # Not save_file: the file would be its owner's alone, and another user may be the one who serves.
        (target / WEIGHTS).write_bytes(
            dumped({name: value.contiguous() for name, value in network.state_dict().items()})
        )
        (target / METRICS).write_text(json.dumps(recommender.metrics, indent=2) + "\n", encoding="utf-8")
        items = recommender.item_ids.frame("item").with_columns(count=recommender.item_counts[1:])
        items.write_parquet(target / ITEMS)
        if histories and recommender.histories is not None:
            (target / HISTORIES).mkdir()
            recommender.histories.fill(target / HISTORIES)
        files = sorted(file for file in target.rglob("*") if file.is_file())
        config["files"] = {file.relative_to(target).as_posix(): _digest(file) for file in files}
        written = histories and recommender.histories is not None
        (target / CARD).write_text(card(recommender, histories=written), encoding="utf-8")
        (target / CONFIG).write_text(json.dumps(config, indent=2) + "\n", encoding="utf-8")


def check(recommender: Recommender) -> None:
    """Refuse what JSON does not know before the training and not after it."""
    for name in ("options", *KINDS):
        value = getattr(recommender, name)
        try:
            json.dumps(value, default=lambda part: part.model_dump(mode="json"))
        except (TypeError, ValueError, AttributeError):
            raise SettingsError(
                f"{name}: {value!r} cannot be written as JSON. Give plain numbers, texts, lists and mappings."
            ) from None


def _chosen(part: Choice[Part]) -> Choice[Part]:
    """A part as it was chosen: its name, or what was given of its settings."""
    if not isinstance(part, Part):
        return part
    return {"name": part.name, **part.model_dump(mode="json", exclude_unset=True)}


def fingerprint(recommender: Trained) -> bytes:
    """Eight bytes that tell a model by what its answers depend on: weights, settings, items, unit of time.

    Of a model whose sessions keep decaying sums also the rates at which they decay.
    """
    digest = hashlib.sha256(decisive(recommender.settings).encode() + recommender.unit.encode())
    for name, value in recommender.network.state_dict().items():
        digest.update(name.encode() + as_bytes(value))
    if recommender.network.recurrent:
        digest.update(recommender.network.readout.memory_kind())
    for identity in recommender.item_ids.ids:
        digest.update(f"{identity}\n".encode())
    return digest.digest()[:8]


def as_bytes(tensor: Tensor) -> bytes:
    """The numbers of a tensor of any dtype; numpy does not know bfloat16."""
    whole = tensor.cpu().flatten().clone(memory_format=torch.contiguous_format)  # a single number may have any stride
    return whole.view(torch.uint8).numpy().tobytes()


def _digest(file: Path) -> str:
    with file.open("rb") as content:
        return hashlib.file_digest(content, "blake2b").hexdigest()[:32]


def load(kind: type[R], folder: Path, device: str, *, within: Path | None = None) -> R:
    """Read what `save` wrote; see `Recommender.load`.

    Links may not lead out of the folder, or out of `within`: whoever brings a folder does not choose what else is read.

    A folder that is replaced meanwhile is read again: its files are opened one after the other, and those of two
    models must not be mixed. One that a killed process had moved aside is put back.
    """
    for _ in range(TRIES):
        if not folder.exists():
            recover(folder)
        before = _identity(folder)
        try:
            recommender = _read(kind, folder, device, within or folder)
            if before is not None and _identity(folder) == before:
                return recommender
        except Exception:
            if before is not None and _identity(folder) == before:
                raise
        time.sleep(0.05)  # between two renames there is no folder at all
    return _read(kind, folder, device, within or folder)


def _identity(folder: Path) -> tuple[int, ...] | None:
    """What changes when a folder is replaced or written anew; None if it is not there."""
    try:
        inside = (folder / CONFIG).stat()
        return folder.stat().st_ino, inside.st_ino, inside.st_mtime_ns
    except OSError:
        return None


def _check_files(folder: Path, digests: Mapping[str, str], within: Path) -> None:
    """Raise if a file is not what was saved, or one that is read has no checksum."""
    read = [folder / WEIGHTS, folder / METRICS, folder / ITEMS]
    read += [file for file in (folder / HISTORIES).rglob("*") if not file.is_dir()]
    for file in [folder / CONFIG, *read]:
        if not file.resolve().is_relative_to(within.resolve()):
            raise DataError(f"{file}: is a link to a file elsewhere, which is not read. Copy the file itself.")
        if file.name != CONFIG and file.relative_to(folder).as_posix() not in digests:
            raise DataError(f"{file}: has no checksum in {CONFIG}. Copy the folder anew, or fit and save it anew.")
    for name, digest in digests.items():
        parts = PureWindowsPath(name)  # which knows both kinds of slashes, and drives, on any system
        inside = not parts.anchor and ".." not in parts.parts
        if not inside or not (folder / name).is_file() or _digest(folder / name) != digest:
            raise DataError(
                f"{folder / name}: differs from what was saved. Copy the folder again, or fit and save it again."
            )


def _check_parts(folder: Path, config: Mapping[str, Any]) -> None:
    """Raise if a part is of somebody else, and nobody has imported it."""
    for kind, base in KINDS.items():
        try:
            base.named(config["model"][kind]["name"])
        except UnknownPartError as error:
            if (origin := config.get("origins", {}).get(kind)) is None:
                raise DataError(f"{folder}: {error}") from None
            module, distribution = origin["module"], origin.get("distribution")
            raise DataError(
                f"{folder}: its {kind} {config['model'][kind]['name']!r} comes from the module {module!r}"
                + (f" of the package {distribution!r}" if distribution else "")
                + f". Import it before you load the model: import {module}, or `marsrec --import {module} …`."
            ) from None


def _missing(folder: Path) -> DataError:
    if (started := folder.with_name(f"{folder.name}.training")).exists():
        return DataError(f"{folder}: its training was not finished ({started}); go on with fit and --resume.")
    near = sorted(str(place.parent) for place in folder.parent.glob(f"{glob.escape(folder.name)}*/{CONFIG}"))
    return DataError(
        f"{folder}: there is no such folder." + (f" Did you mean {' or '.join(near[:3])}?" if near else "")
    )


def _read(kind: type[R], folder: Path, device: str, within: Path) -> R:
    try:
        config = json.loads((folder / CONFIG).read_text(encoding="utf-8"))
        if config["format"] != FORMAT:
            raise DataError(f"{folder}: saved in format {config['format']}, this version reads format {FORMAT}.")
        _check_files(folder, config.get("files", {}), within)
        _check_parts(folder, config)
        recommender = kind(**config["made"], training=TrainingSettings.model_validate(config["training"]))
        recommender.kind, recommender.columns = config["kind"], LogSettings.model_validate(config["columns"])
        recommender.settings = ModelSettings.model_validate(config["model"])
        recommender.split_settings = SplitSettings.model_validate(config["split"])
        items = pl.read_parquet(folder / ITEMS)
        recommender.item_ids = Vocabulary.of(items, "item")
        recommender.item_counts = np.concatenate([[0], items["count"].to_numpy()])
        recommender.unit, recommender.log_end = config["unit"], operator.index(config["log_end"])
        recommender.metrics = json.loads((folder / METRICS).read_text(encoding="utf-8"))
        weights = load_file(folder / WEIGHTS)
        _check_shapes(recommender, weights)
        network = recommender.settings.build(len(recommender.item_ids), recommender.unit)
        network.load_state_dict(weights)
        recommender.network = network.to(device).eval()
        if Histories.is_prepared(folder / HISTORIES):
            recommender.histories = Histories.load(folder / HISTORIES)
    except MarsrecError:
        raise
    except (Exception, PanicException) as error:  # whatever a reader makes of bytes that somebody damaged
        if not folder.exists():
            raise _missing(folder) from None
        if not (folder / CONFIG).is_file():
            raise DataError(
                f"{folder}: holds no saved recommender (no {CONFIG}). `marsrec fit` and Recommender.save write one."
            ) from None
        if isinstance(error, MemoryError) or exhausted(error) is not None:
            raise
        told = explain_validation(error) if isinstance(error, ValidationError) else str(error)
        reason = (told or type(error).__name__).splitlines()[0]
        raise DataError(f"{folder}: not a readable saved recommender ({reason}). Fit and save it again.") from error
    return recommender


class _Undrawn(TorchFunctionMode):
    """Draws no initial weights: on tensors without memory torch would import its compiler for that, for a second."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Leave what would be drawn as it is."""
        given = kwargs or {}
        if func in (Tensor.normal_, nn.init.normal_):
            return args[0] if args else given["tensor"]
        return func(*args, **given)


def _check_shapes(recommender: Trained, weights: Mapping[str, Tensor]) -> None:
    """Raise if settings promise other weights than there are, before memory is taken for those."""
    with torch.device("meta"), _Undrawn():
        planned = recommender.settings.build(len(recommender.item_ids), recommender.unit).state_dict()
    if {name: value.shape for name, value in planned.items()} != {name: value.shape for name, value in weights.items()}:
        raise ValueError(f"the weights of {WEIGHTS} are not those of the model that {CONFIG} describes")
