"""Kernels on disk: compiled anew when what they are made of changes, and announced as what happens to them."""

import importlib
import importlib.util
import inspect
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numba
import pytest
from numba.core.codegen import get_host_cpu_features
from numba.core.dispatcher import Dispatcher

import marsrec
from marsrec.compute import compiled

PACKAGE = Path(marsrec.__file__).parent


@pytest.fixture
def shared(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder with copies of the files that kernels share, which are looked at instead."""
    for name in compiled.SHARED:
        (tmp_path / "package" / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(PACKAGE / name, tmp_path / "package" / name)
    monkeypatch.setattr(compiled.resources, "files", lambda package: tmp_path / "package")
    compiled._shared_code.cache_clear()
    yield tmp_path / "package"
    compiled._shared_code.cache_clear()


def function_in(folder: Path) -> Callable[[int], int]:
    """A function from a file."""
    (folder / "made.py").write_text("def twice(x):\n    return 2 * x\n")
    spec = importlib.util.spec_from_file_location("made", folder / "made.py")
    made = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(made)
    return made.twice


@pytest.mark.parametrize("changed", compiled.SHARED)
def test_a_change_in_shared_code_makes_compiled_kernels_stale(changed: str, shared: Path, tmp_path: Path) -> None:
    function, make = function_in(tmp_path), compiled.kernel(parallel=False)
    make(function)._cache._cache_file.save("signature", "machine code")
    compiled._shared_code.cache_clear()  # another process
    assert make(function)._cache._cache_file.load("signature") == "machine code"
    with (shared / changed).open("a") as file:
        file.write("# changed\n")
    compiled._shared_code.cache_clear()
    assert make(function)._cache._cache_file.load("signature") is None


def test_all_that_kernels_take_from_other_files_is_in_shared_ones() -> None:
    sources = [file for file in PACKAGE.rglob("*.py") if "import kernel\n" in file.read_text()]
    assert len(sources) > 10
    foreign = set()
    for source in sources:
        name = ".".join(("marsrec", *source.relative_to(PACKAGE).with_suffix("").parts))
        module = importlib.import_module(name)
        for kernel in (value for value in vars(module).values() if isinstance(value, Dispatcher)):
            used = [kernel, *(kernel.py_func.__globals__.get(name) for name in kernel.py_func.__code__.co_names)]
            functions = [getattr(value, "py_func", value) for value in used]
            files = {inspect.getfile(each) for each in functions if inspect.isfunction(each)}
            foreign |= {Path(file).relative_to(PACKAGE).as_posix() for file in files if Path(file) != source}
    assert foreign == set(compiled.SHARED) - {"compute/compiled.py"}


def test_processes_that_want_the_same_kernel_compile_it_once(tmp_path: Path) -> None:
    (tmp_path / "made.py").write_text(
        "import numba, numpy\n"
        "from marsrec.compute.compiled import kernel\n"
        "@kernel(parallel=False)\n"
        "def half(x): return x / 2\n"
        "@kernel()\n"
        "def halves(values):\n"
        "    for i in numba.prange(len(values)): values[i] = half(values[i])\n"
    )
    command = [sys.executable, "-c", "import made; made.halves(made.numpy.ones(9)); print(made.halves.stats)"]
    place = {**os.environ, "NUMBA_CACHE_DIR": str(tmp_path / "cache")}
    both = [subprocess.Popen(command, cwd=tmp_path, env=place, stdout=subprocess.PIPE, text=True) for _ in range(2)]
    stats = [process.communicate()[0] for process in both]
    assert [process.returncode for process in both] == [0, 0]
    assert sorted("cache_misses=Counter()" in each for each in stats) == [False, True], stats


def test_without_sources_or_a_place_kernels_are_compiled_but_not_kept(shared: Path, tmp_path: Path) -> None:
    assert compiled.kernel(parallel=False)(without_file("made")).stats.cache_path is None
    (shared / "compute/compiled.py").unlink()
    assert compiled.kernel(parallel=False)(function_in(tmp_path)).stats.cache_path is None


def test_announced_is_what_happens(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    messages: list[str] = []
    for level in ("info", "debug"):
        monkeypatch.setattr(compiled.log, level, messages.append)
    monkeypatch.setattr(compiled._ANNOUNCER, "heading", "")
    kept = function_in(tmp_path)
    kept.__module__ = "marsrec.made"
    for function, known, expected in (
        (kept, 21, "they are kept on disk for the next time"),
        (kept, 21.0, None),  # once is enough
        (
            without_file("marsrec.made"),
            21,
            "there is no place to keep them for the next time (NUMBA_CACHE_DIR names one)",
        ),
    ):
        assert compiled.kernel(parallel=False)(function)(known) == 42
        *heading, took = messages
        assert heading == ([f"Compiling kernels for this CPU; {expected}."] if expected else [])
        assert re.fullmatch(r"  compiled made\.twice in \d+\.\d s", took)
        messages.clear()


def test_functions_of_others_are_compiled_in_silence(monkeypatch: pytest.MonkeyPatch) -> None:
    messages: list[str] = []
    monkeypatch.setattr(compiled.log, "info", messages.append)
    for module in ("made", None):
        assert numba.njit(without_file(module))(21) == 42
    assert messages == []


@pytest.mark.skipif("+avx512f" not in get_host_cpu_features().split(","), reason="no registers of 512 bits")
@pytest.mark.parametrize("features", [None, get_host_cpu_features()])
def test_loops_take_whole_registers_unless_somebody_decides_otherwise(features: str | None, tmp_path: Path) -> None:
    """In a process of its own: numba asks once, before it first compiles."""
    (tmp_path / "trial.py").write_text(
        "import numba, numpy\n"
        "from marsrec.compute.compiled import kernel\n"
        "@kernel(parallel=False)\n"
        "def double(values):\n"
        "    for i in range(len(values)): values[i] *= 2\n"
        "double(numpy.ones(3, numpy.float32))\n"
        "print('zmm' in ''.join(double.inspect_asm().values()), numba.config.CPU_FEATURES)\n"
    )
    others = {name: value for name, value in os.environ.items() if not name.startswith("NUMBA_")}
    environment = others if features is None else {**others, "NUMBA_CPU_FEATURES": features}
    command = [sys.executable, str(tmp_path / "trial.py")]
    run = subprocess.run(command, env=environment, cwd=tmp_path, capture_output=True, text=True, check=True)
    whole, taken = run.stdout.split()
    if features is None:
        assert whole == "True"
    else:  # what it comes to is up to the CPU: not all of them clock lower for wide registers
        assert taken == features


def without_file(module: str | None) -> Callable[[int], int]:
    """A function that was made from text."""
    names: dict[str, Any] = {"__name__": module} if module else {}
    exec("def twice(x): return 2 * x", names)
    assert names["twice"].__module__ == module
    return names["twice"]
