"""What converted code knows under the name ``ag__``."""

from __future__ import annotations

import sys

from unisono._src.autograph import conversion
from unisono._src.autograph.branches import (
    and_ as and_,
    assert_stmt as assert_stmt,
    if_exp as if_exp,
    if_stmt as if_stmt,
    not_ as not_,
    or_ as or_,
)
from unisono._src.autograph.calls import call as call, iterate as iterate
from unisono._src.autograph.carried import UNDEFINED as UNDEFINED, Symbol as Symbol
from unisono._src.autograph.conversion import convert as convert
from unisono._src.autograph.loops import for_stmt as for_stmt, while_stmt as while_stmt

conversion.use_runtime(sys.modules[__name__])
