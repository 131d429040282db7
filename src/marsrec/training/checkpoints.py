"""Training state on disk: one safetensors file, replaced atomically. Nothing is pickled."""

import errno
import json
import os
import shutil
from pathlib import Path
from typing import Any

import torch
from lightning.pytorch.plugins.io import CheckpointIO
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file

from marsrec.atomic import atomic_file
from marsrec.errors import DataError

TENSOR, ITEMS = "__tensor__", "__items__"


class SafetensorsIO(CheckpointIO):
    """Writes Lightning's checkpoints, which are nested dictionaries, as tensors with a JSON skeleton beside them."""

    def save_checkpoint(self, checkpoint: dict[str, Any], path: Any, storage_options: Any | None = None) -> None:
        """Write a checkpoint; a reader sees the previous one until it is complete."""
        tensors: dict[str, torch.Tensor] = {}
        skeleton = json.dumps(_pack(checkpoint, tensors))
        with atomic_file(Path(path)) as temporary:
            try:
                save_file(tensors, temporary, metadata={"checkpoint": skeleton})
            except SafetensorError as error:  # which does not say what the system said
                free = shutil.disk_usage(temporary.parent).free
                if free > sum(tensor.nbytes for tensor in tensors.values()):
                    raise
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(path)) from error

    def load_checkpoint(self, path: Any, *args: Any, **kwargs: Any) -> dict[str, Any]:
        """Read a checkpoint."""
        try:
            with safe_open(path, framework="pt") as file:
                skeleton = json.loads(file.metadata()["checkpoint"])
                checkpoint: dict[str, Any] = _unpack(skeleton, file.get_tensor)
        except (OSError, SafetensorError, KeyError, TypeError, ValueError) as error:
            raise DataError(
                f"{path}: not a readable checkpoint ({error}). Delete it and train again without --resume."
            ) from error
        return checkpoint

    def remove_checkpoint(self, path: Any) -> None:
        """Delete a checkpoint."""
        Path(path).unlink(missing_ok=True)


def _pack(value: Any, tensors: dict[str, torch.Tensor]) -> Any:
    """The value as JSON, with its tensors moved to `tensors` and named there."""
    if isinstance(value, torch.Tensor):
        name = str(len(tensors))
        tensors[name] = value.detach().clone().contiguous()  # safetensors refuses tensors that share memory
        return {TENSOR: name}
    if isinstance(value, dict):
        if all(isinstance(key, str) for key in value):
            return {key: _pack(item, tensors) for key, item in value.items()}
        return {ITEMS: [[key, _pack(item, tensors)] for key, item in value.items()]}  # JSON knows only text as keys
    if isinstance(value, list | tuple):
        return [_pack(item, tensors) for item in value]
    if value is None or isinstance(value, bool | int | float | str):
        return value
    raise TypeError(f"cannot write a {type(value).__name__} to a checkpoint")


def _unpack(value: Any, tensor: Any) -> Any:
    """Undo `_pack`."""
    if isinstance(value, dict):
        if TENSOR in value:
            return tensor(value[TENSOR])
        if ITEMS in value:
            return {key: _unpack(item, tensor) for key, item in value[ITEMS]}
        return {key: _unpack(item, tensor) for key, item in value.items()}
    return [_unpack(item, tensor) for item in value] if isinstance(value, list) else value
