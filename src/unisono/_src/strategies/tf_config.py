"""The cluster of the environment variable ``TF_CONFIG``, for want of a resolver."""

from __future__ import annotations

import dataclasses
import json
import os
from typing import Any


@dataclasses.dataclass(frozen=True)
class _Spec:
    """Addresses by job."""

    jobs: dict[str, Any]

    def as_dict(self) -> dict[str, Any]:
        """The same as a dictionary."""
        return dict(self.jobs)


@dataclasses.dataclass(frozen=True)
class TFConfig:
    """What ``TF_CONFIG`` says: who the workers are, and which one this is."""

    jobs: dict[str, Any]
    task_type: str | None
    task_id: int | None

    def cluster_spec(self) -> _Spec:
        """The addresses of all tasks, by job."""
        return _Spec(self.jobs)


def read() -> TFConfig:
    """Read ``TF_CONFIG``; without it there is no cluster.

    Raises:
        ValueError: it is not a JSON object of the expected form.
    """
    text = os.environ.get("TF_CONFIG", "{}")
    try:
        found = json.loads(text)
        jobs, task = found.get("cluster", {}), found.get("task", {})
        kind, index = task.get("type"), task.get("index")
        return TFConfig(dict(jobs), kind, None if index is None else int(index))
    except (AttributeError, TypeError, ValueError) as error:
        raise ValueError(
            'TF_CONFIG must be a JSON object such as {"cluster": {"worker": '
            '["host:port"]}, "task": {"type": "worker", "index": 0}}; received '
            f"{text[:200]!r}: {error}"
        ) from None
