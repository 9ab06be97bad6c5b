"""Counts the accelerators of this machine without starting a JAX backend."""

from __future__ import annotations

import collections
import os
import pathlib
import re
import subprocess

VISIBLE_GPUS = "CUDA_VISIBLE_DEVICES"
_DEVICES = pathlib.Path("/dev")
# The Linux driver shows each TPU chip as a device file /dev/accelN.
_TPU = re.compile(r"accel\d+")
# `nvidia-smi` can hang for minutes where a GPU has failed.
_SMI_SECONDS = 10.0


def visible_gpus() -> list[str]:
    """Returns the GPUs of this process by their names in CUDA_VISIBLE_DEVICES."""
    named = os.environ.get(VISIBLE_GPUS)
    if named is not None:
        # CUDA stops reading at the first entry that it does not know, such as -1.
        parts = [part.strip() for part in named.split(",")]
        stop = next((i for i, p in enumerate(parts) if p in ("", "-1")), len(parts))
        return parts[:stop]
    return [str(i) for i in range(_count_by_nvidia_smi())]


def _count_by_nvidia_smi() -> int:
    try:
        listed = subprocess.run(
            ["nvidia-smi", "--list-gpus"],
            capture_output=True,
            text=True,
            timeout=_SMI_SECONDS,
            check=True,
        ).stdout
    except (OSError, subprocess.SubprocessError):
        return 0
    return sum(line.startswith("GPU ") for line in listed.splitlines())


def count() -> dict[str, int]:
    """Returns how many accelerators of each kind this process may use.

    The result is empty where JAX_PLATFORMS says that JAX uses the CPU first.
    """
    found: dict[str, int] = collections.defaultdict(int)
    platforms = os.environ.get("JAX_PLATFORMS", "").lower().split(",")
    # JAX computes on the first platform that it has.
    if platforms[0] == "cpu":
        return found
    gpus = len(visible_gpus())
    if gpus:
        found["GPU"] = gpus
    if _DEVICES.is_dir():
        tpus = sum(bool(_TPU.fullmatch(entry.name)) for entry in _DEVICES.iterdir())
        if tpus:
            found["TPU"] = tpus
    return found
