"""Colours of categories: seen on their ground, and told apart, also by colour-blind eyes."""

import re

import numpy as np
import pytest
from numpy.typing import NDArray

from marsrec.serve.app import PAGE

# What is left of linear RGB to eyes that lack one kind of cone (Machado, Oliveira and Fernandes, 2009).
EYES = {
    "all cones": np.eye(3),
    "protanopia": [[0.152286, 1.052583, -0.204868], [0.114503, 0.786281, 0.099216], [-0.003882, -0.048116, 1.051998]],
    "deuteranopia": [[0.367322, 0.860646, -0.227968], [0.280085, 0.672501, 0.047413], [-0.01182, 0.04294, 0.968881]],
    "tritanopia": [[1.255528, -0.076749, -0.178779], [-0.078411, 0.930809, 0.147602], [0.004733, 0.691367, 0.3039]],
}
TO_XYZ = np.array([[0.4124, 0.3576, 0.1805], [0.2126, 0.7152, 0.0722], [0.0193, 0.1192, 0.9505]])
CONTRAST = 3.0
"""What WCAG 2.1 wants of graphical objects."""
APART = 20.0
"""Distance in CIELAB; around 2 can just be noticed."""


def colours(theme: str) -> dict[str, NDArray[np.float64]]:
    """Variables of the light or the dark theme, in linear RGB."""
    light, dark = re.findall(r":root \{(.*?)\n *\}", (PAGE / "style.css").read_text(), re.DOTALL)
    found = re.findall(r"--(\w+): #([0-9a-f]{6});", {"light": light, "dark": dark}[theme])
    rgb = {name: np.array([int(digits[i : i + 2], 16) for i in (0, 2, 4)]) / 255 for name, digits in found}
    return {name: np.where(c <= 0.04045, c / 12.92, ((c + 0.055) / 1.055) ** 2.4) for name, c in rgb.items()}


def lab(linear: NDArray[np.float64]) -> NDArray[np.float64]:
    xyz = linear @ TO_XYZ.T / np.array([0.9505, 1.0, 1.089])
    x, y, z = np.where(xyz > 0.008856, np.cbrt(xyz), 7.787 * xyz + 16 / 116).T
    return np.stack([116 * y - 16, 500 * (x - y), 200 * (y - z)], axis=1)


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_categories_are_seen_and_told_apart(theme: str) -> None:
    named = colours(theme)
    kinds = np.stack([named[f"kind{i}"] for i in range(7)])
    for ground in ("ground", "card"):
        lights = np.stack([kinds @ TO_XYZ[1], np.full(7, named[ground] @ TO_XYZ[1])]) + 0.05
        assert (lights.max(0) / lights.min(0)).min() >= CONTRAST
    for seen in EYES.values():
        places = lab(np.clip(kinds @ np.array(seen).T, 0, 1))
        distances = np.linalg.norm(places[:, None] - places[None], axis=2) + 1e9 * np.eye(7)
        assert distances.min() >= APART
