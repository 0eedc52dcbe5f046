"""Where and how a model runs: device, dtype, threads, and a word for the machine.

`auto` picks what the hardware does well; anything else is taken as asked, or refused in one line.
"""

import math
import os
import platform
import subprocess
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path

import torch

from draftwise.core.errors import ModelError, OptionError

DTYPES = ("auto", "float32", "bfloat16", "float16", "float64")
"""Names that `pick_dtype` takes."""

_BFLOAT16_FLAGS = frozenset({"avx512_bf16", "amx_bf16", "bf16"})
_ROOT = Path("/")
_LENT: list[int] = []
"""The threads that torch had before it lent them, if it did."""


def pick_device(name: str = "auto") -> torch.device:
    """The device of that name; `auto` is cuda, else mps, else cpu. ModelError if it is not here."""
    cuda, mps = torch.cuda.is_available(), torch.backends.mps.is_available()
    found = {"cuda": cuda, "mps": mps, "cpu": True}
    kind, _, index = name.partition(":")
    if name == "auto":
        return torch.device(next(kind for kind, here in found.items() if here))
    if kind not in found or (index and not (kind == "cuda" and index.isdecimal())):
        raise OptionError(f"Unknown device {name!r}: choose auto, cpu, cuda, cuda:N or mps.")
    if not found[kind]:
        here = ", ".join(kind for kind, here in found.items() if here)
        raise ModelError(f"No {kind} device can be used here: choose auto or {here}.")
    if index and int(index) >= torch.cuda.device_count():
        raise ModelError(f"No {name} here: there are {torch.cuda.device_count()}, from cuda:0.")
    return torch.device(name)


def pick_dtype(name: str, device: torch.device) -> torch.dtype:
    """The dtype of that name; `auto` is the narrowest that the device has in hardware."""
    if name not in DTYPES:
        raise OptionError(f"Unknown dtype {name!r}: choose one of {', '.join(DTYPES)}.")
    if name == "auto":
        return _native_dtype(device)
    if name == "float64" and device.type == "mps":
        raise ModelError("mps has no float64: choose --dtype float32, or --device cpu.")
    return getattr(torch, name)


def _native_dtype(device: torch.device) -> torch.dtype:
    if device.type == "cuda":
        with torch.cuda.device(device):
            native = torch.cuda.is_bf16_supported(including_emulation=False)
        return torch.bfloat16 if native else torch.float16
    if device.type == "mps":
        return torch.float16
    return torch.bfloat16 if _BFLOAT16_FLAGS & _processor_flags() else torch.float32


def _processor_flags(root: Path = _ROOT) -> frozenset[str]:
    """What the processor says it can do; nothing on macOS, where torch would make no use of it."""
    described = _processor_description(root)
    if described:
        return frozenset((described.get("flags") or described.get("Features") or "").split())
    if sys.platform == "darwin":
        return frozenset()
    capabilities = getattr(torch.cpu, "get_capabilities", dict)()
    return frozenset(name for name, here in capabilities.items() if here is True)


def _processor_description(root: Path = _ROOT) -> dict[str, str]:
    """The first processor's entries in Linux's /proc/cpuinfo; empty on other systems."""
    try:
        text = (root / "proc/cpuinfo").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return {}
    lines = (line.partition(":") for line in text.split("\n\n")[0].splitlines())
    return {key.strip(): value.strip() for key, _, value in lines}


def available_cores(root: Path = _ROOT) -> int:
    """Cores that this process may use: its affinity, and the quota of its control groups."""
    affinity = getattr(os, "sched_getaffinity", None)
    cores = len(affinity(0)) if affinity else os.cpu_count() or 1
    return max(1, int(min(cores, _quota(root))))


def _quota(root: Path) -> float:
    """Cores that this process's control groups (version 1 or 2) grant; infinite without a limit."""
    try:
        groups = (root / "proc/self/cgroup").read_text(encoding="utf-8").splitlines()
    except OSError:
        return math.inf
    granted = [math.inf]
    for group in groups:
        _, controllers, path = group.split(":", 2)
        if controllers and "cpu" not in controllers.split(","):
            continue
        base = root / "sys/fs/cgroup" / (controllers and "cpu")
        # A limit on any ancestor binds; in a container the path may name nothing below the mount.
        inner = Path(path.lstrip("/"))
        granted += [_granted(base / folder) for folder in (inner, *inner.parents)]
    return min(granted)


def _granted(folder: Path) -> float:
    """Quota over period of one control group, in either version's files."""
    try:
        if (folder / "cpu.max").exists():
            quota, period = (folder / "cpu.max").read_text().split()
        else:
            quota = (folder / "cpu.cfs_quota_us").read_text()
            period = (folder / "cpu.cfs_period_us").read_text()
        return int(quota) / int(period) if quota != "max" and int(quota) > 0 else math.inf
    except (OSError, ValueError):
        return math.inf


def set_threads(threads: int | None = None) -> int:
    """Give torch that many threads, by default no more than the cores; returns what took effect."""
    cores = available_cores()
    usual = _LENT.pop() if _LENT else torch.get_num_threads()
    if threads is None:
        threads = min(usual, cores)
    if threads < 1:
        raise OptionError(f"{threads} threads cannot run a model: ask for 1 or more.")
    if threads > cores:
        raise OptionError(
            f"{threads} threads asked for, but this process may use {_counted_cores(cores)}."
        )
    torch.set_num_threads(threads)
    return threads


def lend_threads() -> None:
    """Leave the cores to another runtime until the next `set_threads`.

    torch's threads spin for milliseconds after each of its operations, and what is left for torch
    between the passes of another runtime is small: one thread does it sooner.
    """
    if not _LENT:
        _LENT.append(torch.get_num_threads())
    torch.set_num_threads(1)


def _counted_cores(cores: int) -> str:
    return "1 core" if cores == 1 else f"{cores} cores"


def describe_machine() -> str:
    """Processor, cores and GPUs in a few words, such as "AMD EPYC, 2 cores; NVIDIA H200"."""
    words = [f"{_processor_name()}, {_counted_cores(available_cores())}"]
    if torch.cuda.is_available():
        names = [torch.cuda.get_device_name(index) for index in range(torch.cuda.device_count())]
        words += [f"{names.count(name)} x {name}" for name in sorted(set(names))]
    if torch.backends.mps.is_available():
        words.append("mps")
    return "; ".join(words)


def _processor_name() -> str:
    if sys.platform == "darwin":
        command = ["sysctl", "-n", "machdep.cpu.brand_string"]
        return subprocess.run(command, capture_output=True, text=True, check=False).stdout.strip()
    return _processor_description().get("model name") or platform.processor() or platform.machine()


def synchronizer(device: torch.device) -> Callable[[], None]:
    """A function that waits until the device has done its work; on the CPU it has nothing to do."""
    if device.type == "cuda":
        return partial(torch.cuda.synchronize, device)
    if device.type == "mps":
        return torch.mps.synchronize
    return _nothing


def _nothing() -> None:
    return None
