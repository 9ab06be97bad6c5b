"""NumPy's arrays and numbers with TensorFlow's method `numpy` and its operators.

TensorFlow's numbers are tensors, and programs call ``.numpy()`` on them. Where this
library gives a NumPy array or number instead, it is one of these: the same array or
number of the same type to NumPy, to JAX and to Python. One text is `bytes` with the
same method.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, final

import numpy as np

from unisono._src.foundation import dtypes, host_operators, nest
from unisono._src.foundation.tensor_shape import ShapeLike, TensorShape
from unisono._src.foundation.tensorflow_names import host_bodies


@final
class HostArray(np.ndarray):
    """An array as the user gets it: NumPy's, with TensorFlow's operators and `numpy`.

    ``x /= 255`` makes a new array, as for a tensor: the array may belong to the source
    of the data, and its type may not hold the result. NumPy's functions and methods
    compute what they do for other arrays.

    >>> to_host_array(np.arange(3)).numpy().tolist()
    [0, 1, 2]
    >>> x = given = to_host_array(np.array([51], np.uint8))
    >>> x /= 255
    >>> x.dtype.name, x.tolist(), given.tolist(), given[0].numpy()
    ('float32', [0.20000000298023224], [51], np.uint8(51))
    """

    def numpy(self) -> Any:
        """Returns a plain NumPy array that can be changed, or a scalar for shape ()."""
        plain = self.view(np.ndarray)
        if not self.ndim:
            return plain[()]
        # Others may read the memory of an array that cannot be changed.
        return plain if plain.flags.writeable else plain.copy()

    def get_shape(self) -> TensorShape:
        """Returns the shape as TensorFlow's class of shapes."""
        return TensorShape(self.shape)

    def set_shape(self, shape: ShapeLike) -> None:
        """Raises `ValueError` unless the array may have a shape; its own is known."""
        TensorShape(self.shape).assert_is_compatible_with(shape)

    def __getitem__(self, key: Any) -> Any:
        return to_host_number(super().__getitem__(key))

    def __hash__(self) -> int:  # type: ignore[override]
        # The sum of an array is of this class, too, and may be the key of a dict.
        if self.ndim:
            raise TypeError("unhashable type: 'HostArray'")
        return hash(self.numpy())

    def __array_function__(
        self, func: Any, types: Any, args: Any, kwargs: Mapping[str, Any]
    ) -> Any:
        # NumPy's functions use operators inside, and mean their own.
        plain = {name: _to_plain(x) for name, x in kwargs.items()}
        return _present_all(func(*_to_plain(args), **plain))

    def std(self, *args: Any, **kwargs: Any) -> Any:
        """Returns NumPy's standard deviation, which uses operators inside."""
        return to_host_array(self.view(np.ndarray).std(*args, **kwargs))

    def var(self, *args: Any, **kwargs: Any) -> Any:
        """Returns NumPy's variance, which uses operators inside."""
        return to_host_array(self.view(np.ndarray).var(*args, **kwargs))


def to_host_array(x: Any) -> Any:
    """Returns an array or number of NumPy's as a `HostArray`, and one text as such."""
    if type(x) is bytes:
        # An array of NumPy's own type of bytes would lose zeros at their end.
        return HostText(x)
    return (x if type(x) is np.ndarray else np.asarray(x)).view(HostArray)


def _to_plain(x: Any) -> Any:
    """Returns an argument of a NumPy function with plain arrays in it."""
    kind = type(x)
    if kind is HostArray:
        return x.view(np.ndarray)
    return kind([_to_plain(part) for part in x]) if kind in (list, tuple) else x


def _present_all(x: Any) -> Any:
    """Returns the result of a NumPy function with arrays as users get them."""
    kind = type(x)
    if kind is np.ndarray or isinstance(x, np.generic):
        return to_host_array(x)
    return kind([_present_all(part) for part in x]) if kind in (list, tuple) else x


_OPERATORS = dict(host_operators.methods(to_host_array))
# In a loop, because NumPy's types let no subclass say so.
for _name, _method in _OPERATORS.items():
    setattr(HostArray, _name, _method)
for _name in ("lshift", "rshift"):
    setattr(HostArray, f"__i{_name}__", getattr(np.ndarray, f"__{_name}__"))


def _numpy(self: Any) -> np.generic:
    """Returns the plain NumPy number."""
    number: np.generic = self[()]
    return number


def _repr(self: Any) -> str:
    return repr(self[()])


@final
class HostBool(np.ndarray):
    """The result of comparing two numbers: NumPy's bool with the method `numpy`.

    NumPy's bool cannot have subclasses, so this is an array of shape ().
    """

    def numpy(self) -> np.bool_:
        """Returns the plain NumPy bool."""
        return np.bool_(self)

    def __hash__(self) -> int:  # type: ignore[override]
        return hash(bool(self))

    def __repr__(self) -> str:
        return repr(np.bool_(self))

    def __array_wrap__(
        self, array: np.ndarray, context: object = None, scalar: bool = False
    ) -> Any:
        # What NumPy makes of it is an ordinary array or number.
        return array[()] if array.ndim == 0 else array


def _number_method(method: Callable[..., Any]) -> Callable[..., Any]:
    """Returns an operator of numbers, which are arrays of shape () to it."""

    def operate(self: Any, *other: object) -> object:
        # `self[()]` is the plain number.
        found = method(np.asarray(self[()]).view(HostArray), *other)
        if type(found) is not HostArray or found.ndim:
            return found
        if found.dtype.kind == "b":
            return found.view(HostBool)
        return to_host_number(found.numpy())

    return operate


_METHODS: dict[str, Any] = {
    name: _number_method(method)
    for name, method in _OPERATORS.items()
    # Numbers have no in-place operators; Python calls the others.
    if hasattr(np.generic, name)
}
_KINDS: list[type[np.generic]] = [
    np.int8, np.int16, np.int32,
    np.uint8, np.uint16, np.uint32, np.uint64,
    np.float16, np.float32, np.float64,
    np.complex64, np.complex128,
]  # fmt: skip
_WITH_NUMPY: dict[type, Any] = {
    kind: type(
        kind.__name__,
        (kind,),
        {
            "numpy": _numpy,
            "__repr__": _repr,
            # A class that compares in its own way has no hash, unless it says so.
            "__hash__": kind.__hash__,
            **_METHODS,
        },
    )
    for kind in _KINDS
}


@final
class HostInt64(np.int64):
    """An `np.int64` with the method `numpy`, for annotations."""

    def numpy(self) -> np.int64:
        """Returns the plain NumPy number."""
        return np.int64(self)

    __repr__ = _repr
    __hash__ = np.int64.__hash__


for _name, _method in _METHODS.items():
    setattr(HostInt64, _name, _method)
_WITH_NUMPY[np.int64] = HostInt64
# All these classes but `HostBool`.
CLASSES: tuple[type[np.generic], ...] = tuple(_WITH_NUMPY.values())
# The element types of these classes and of NumPy's.
TYPES: dict[type, np.dtype] = {
    kind: np.dtype(plain)
    for plain, made in _WITH_NUMPY.items()
    for kind in (plain, made)
}


_MANY = (np.ndarray, list, tuple)


@final
class HostText(bytes):
    r"""One text: `bytes` that have TensorFlow's `numpy`, and that equal a `str`.

    >>> text = HostText(b"caf\xc3\xa9")
    >>> bool(text == "caf\u00e9"), text + "s", text.numpy()
    (True, b'caf\xc3\xa9s', b'caf\xc3\xa9')
    """

    shape = ()
    ndim = 0
    dtype = dtypes.string

    def numpy(self) -> bytes:
        """Returns the plain bytes."""
        return bytes(self)

    def get_shape(self) -> TensorShape:
        """Returns the shape as TensorFlow's class of shapes."""
        return TensorShape(())

    def set_shape(self, shape: ShapeLike) -> None:
        """Raises `ValueError` unless one text may have the shape."""
        TensorShape(()).assert_is_compatible_with(shape)

    # NumPy's arrays leave operators to this class. NumPy itself takes `bytes` of
    # another class for a number, or fails.
    __array_ufunc__ = None

    def __getitem__(self, key: Any) -> Any:
        # `text[newaxis]` adds an axis; all else is what `bytes` have.
        parts = key if isinstance(key, tuple) else (key,)
        if all(part is None or part is Ellipsis for part in parts):
            return self._as_array()[key]
        return bytes.__getitem__(self, key)

    def _as_array(self) -> HostArray:
        whole = np.empty((), object)
        whole[()] = bytes(self)
        return whole.view(HostArray)

    def __eq__(self, other: object) -> np.ndarray:  # type: ignore[override]
        if isinstance(other, _MANY):
            texts = np.array(other, object)
            flat = [bytes(self) == _encode(x) for x in texts.ravel().tolist()]
            return np.array(flat, bool).reshape(texts.shape)
        return np.asarray(bytes(self) == _encode(other)).view(HostBool)

    def __ne__(self, other: object) -> Any:
        return np.logical_not(self == other)

    def __add__(self, other: Any) -> Any:
        if isinstance(other, (bytes, str)):
            return HostText(bytes.__add__(self, _encode(other)))
        return self._as_array() + _encode_all(other)

    def __radd__(self, other: Any) -> Any:
        if isinstance(other, (bytes, str)):
            return HostText(bytes.__add__(_encode(other), self))
        return _encode_all(other) + self._as_array()

    __hash__ = bytes.__hash__


def _encode(x: Any) -> Any:
    """Returns a `str` as `bytes`, and anything else as it is."""
    return x.encode() if isinstance(x, str) else x


def _encode_all(x: Any) -> Any:
    """Returns several texts as an array of `bytes`, and anything else as it is."""
    if not isinstance(x, _MANY):
        return x
    whole = np.array(x)
    if whole.dtype.kind not in "OSU":
        return whole
    # An array of NumPy's own type of bytes would lose zeros at their end.
    whole = np.array(x, object)
    texts = whole.reshape(-1)
    for number, text in enumerate(texts.tolist()):
        texts[number] = _encode(text)
    return texts.reshape(whole.shape).view(HostArray)


_WITH_NUMPY[bytes] = HostText
host_bodies.add_classes(HostArray, HostBool, *_WITH_NUMPY.values())


def find_class(dtype: np.dtype) -> Callable[[Any], Any]:
    """Returns the class of numbers of a type, which have the method `numpy`."""
    found: Callable[[Any], Any] = _WITH_NUMPY[dtype.type]
    return found


def to_host_number(x: object) -> Any:
    """Returns a number or text with the method `numpy`, and anything else as it is.

    >>> to_host_number(np.float32(3)), to_host_number(np.float32(3)).numpy()
    (np.float32(3.0), np.float32(3.0))
    >>> to_host_number("text")
    'text'
    """
    kind = _WITH_NUMPY.get(type(x))
    return x if kind is None else kind(x)


def to_host_numbers(x: object) -> Any:
    """Returns `x` with the method `numpy` on every NumPy number in its structure.

    A structure without such numbers stays the same object.

    >>> to_host_numbers({"loss": np.float32(3)})["loss"].numpy()
    np.float32(3.0)
    """
    if not nest.is_nested(x):
        return to_host_number(x)
    if any(type(leaf) in _WITH_NUMPY for leaf in nest.leaves(x)):
        return nest.map_structure(to_host_number, x)
    return x
