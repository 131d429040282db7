"""A trained model for other software: an ONNX graph, the item vectors, and a JSON that tells how to ask."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from safetensors.torch import save as dumped

from marsrec.atomic import atomic_folder
from marsrec.errors import MarsrecError, SettingsError
from marsrec.models import title
from marsrec.nn.arrays.base import FastUser, Map
from marsrec.nn.arrays.numpy_arrays import NumpyArrays
from marsrec.nn.model import SequenceModel
from marsrec.recommender.inference import Request, Window
from marsrec.recommender.onnx_arrays import OnnxArrays

if TYPE_CHECKING:
    from marsrec.recommender import Recommender

FORMAT = 1
GRAPH, VECTORS, CONTRACT = "model.onnx", "items.safetensors", "model.json"
LARGEST = 2**31 - 2**20
"""Bytes that a graph may have: protocol buffers end at 2 GB."""
_EXAMPLE = 5
"""Events and best items of the worked example."""


def reason_against(network: SequenceModel) -> str | None:
    """Which part keeps a model from being computed without torch, and so from being exported; None if none does."""
    if network.repeats is not None:
        return "what its repeats add to scores is computed by torch"
    arrays = NumpyArrays()
    parts = (
        ("encoder", network.encoder, network.encoder.fast(arrays)),
        ("readout", network.readout, network.readout.fast(arrays)),
        ("scorer", network.scorer, network.scorer.fast(arrays)),
    )
    without = [f"{kind} {type(part).__name__}" for kind, part, form in parts if form is None]
    return f"{' and '.join(without)} with these settings cannot be computed without torch" if without else None


def export(recommender: Recommender, folder: Path) -> None:
    """Write a model for other software; see `Recommender.export`."""
    network, items = recommender.network, recommender.item_ids
    if (reason := reason_against(network)) is not None:
        raise SettingsError(f"{title(recommender.settings)} cannot be exported: {reason}.")
    size = network.items.weight.numel() * 4
    if size > LARGEST:
        raise SettingsError(
            f"an ONNX file ends at 2 GB; the vectors of {len(items):,} items alone take {size:,} bytes."
        )
    vectors, bias = recommender.inference.scored
    tensors = {"vectors": vectors.detach().float().cpu().contiguous()}
    if bias is not None:
        tensors["bias"] = bias.detach().float().cpu().contiguous()
    with atomic_folder(folder, marker=CONTRACT) as target:
        (target / GRAPH).write_bytes(graph(network))
        (target / VECTORS).write_bytes(dumped(tensors))
        (target / CONTRACT).write_text(
            json.dumps(_contract(recommender), indent=1, default=str) + "\n", encoding="utf-8"
        )


def graph(network: SequenceModel) -> bytes:
    """The ONNX graph from a history to its user vector, as the scorer turns it, where nothing is against that."""
    arrays = OnnxArrays()
    codes, times = arrays.given("items", ["events"]), arrays.given("times", ["events"])
    now = arrays.given("now", []) if network.sees_request_time else times  # who does not see it does not ask for it
    user: FastUser | None = network.fast(arrays)
    turned: Map | None = network.scorer.fast(arrays)
    assert user is not None
    assert turned is not None
    content: bytes = arrays.model(turned(user(codes, times, now)), network.items.weight.shape[1]).SerializeToString()
    return content


def _contract(recommender: Recommender) -> dict[str, Any]:
    network, settings = recommender.network, recommender.settings
    inputs = {
        "items": "int64 (events,): codes of the items, the oldest first; an id's code is its place in ids, from 1 on",
        "times": f"int64 (events,): when, in {recommender.unit} since 1970 as in the log, never decreasing",
    }
    if network.sees_request_time:
        inputs["now"] = f"int64 (): the moment of the request, in {recommender.unit}, not before the latest event"
    tau0 = getattr(getattr(network.readout, "operator", None), "tau0", None)
    return {
        "format": FORMAT,
        "model": title(settings),
        "graph": GRAPH,
        "inputs": inputs,
        "output": f"user: float32 ({settings.dim},)",
        "length": settings.length,
        "events": f"from 1 to {settings.length}: of a longer history the latest, unknown items left out",
        "unit": recommender.unit,
        "tau0": tau0,
        "vectors": VECTORS,
        "score": "vectors[code] · user" + (" + bias[code]" if recommender.inference.scored[1] is not None else ""),
        "ranking": "by score, the highest first; equal scores by code; row 0 of the vectors is padding and no item",
        "example": _example(recommender),
        "ids": recommender.item_ids.ids.to_list(),
    }


def _example(recommender: Recommender) -> dict[str, Any]:
    """Inputs, and what comes of them: the best items with nothing left out."""
    inference, count = recommender.inference, min(_EXAMPLE, len(recommender.item_ids), recommender.settings.length)
    codes = np.arange(count, 0, -1, dtype=np.int64)
    times = recommender.log_end - 3600 * np.arange(count, dtype=np.int64)[::-1]
    now = recommender.log_end + 3600
    with torch.no_grad():
        (answer,) = inference.answer([Request(Window(codes, times), now, k=min(_EXAMPLE, len(recommender.item_ids)))])
    given = {"items": codes.tolist(), "times": times.tolist()}
    if recommender.network.sees_request_time:
        given["now"] = now
    if len(answer.codes) == 0:
        raise MarsrecError("the model answers its own example with nothing: its scores are not finite. Train it anew.")
    top = [
        {"code": code, "score": score}
        for code, score in zip(answer.codes.tolist(), answer.scores.tolist(), strict=True)
    ]
    return {"inputs": given, "top": top}
