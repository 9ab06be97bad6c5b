"""Tests whether a program computes the same on any number of replicas."""

from unisono._src.foundation import lazy_names as _lazy_names
from unisono._src.testing.causes import Cause as Cause
from unisono._src.testing.comparison import Difference as Difference
from unisono._src.testing.parity import (
    ParityReport as ParityReport,
    check_parity as check_parity,
)

_lazy_names.serve(__name__)
