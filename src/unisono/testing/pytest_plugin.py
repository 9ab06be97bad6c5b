"""A pytest plugin with the fixture `check_parity`."""

from unisono._src.foundation import lazy_names as _lazy_names
from unisono._src.testing.pytest_fixtures import check_parity as check_parity

_lazy_names.serve(__name__)
