"""Expressions that mean the same to TensorFlow and to unisono, by topic.

With TensorFlow, ``python tests/unit/ops/everyday_programs.py`` writes what each of them
gives to ``everyday_programs.json``; the tests compare it with what unisono gives.
"""

import functools
import json
import pathlib
import tempfile

import numpy as np

STORE = pathlib.Path(__file__).with_suffix(".json")

PROGRAMS = {
    "tensor_shape": """
        T([2, None]).as_list()
        T(None).as_list()
        len(T(None))
        T([2, None]) == (2, None)
        T([2, 3]) == [2, 4]
        T([2, 3]) == 5
        str(T(5)), repr(T([2, None])), str(T(None)), repr(T(None)), str(T([]))
        T([-1, 2])
        T(["a"])
        T([2.5])
        T([1, 2])[0], T([1, 2])[-1], T(None)[0]
        repr(T([1, 2, 3])[1:]), repr(T(None)[1:]), repr(T(None)[:2])
        T([1])[3]
        repr(T([1, 2]).concatenate([3])), repr(T([1]) + [2]), repr([1] + T([2]))
        repr(T(None).concatenate([3]))
        repr(T([1, None]).merge_with([None, 3]))
        T([1, 2]).merge_with([2, 2])
        T([1, None]).is_compatible_with([1, 5]), T([1]).is_compatible_with([1, 5])
        repr(T(None).with_rank(2))
        T([2]).with_rank(2)
        T([2]).with_rank_at_least(3)
        T([2, 3]).with_rank_at_most(1)
        T([2, None]).assert_is_fully_defined()
        T([2]).assert_is_compatible_with([3])
        T([2]).assert_same_rank([3, 4])
        T([2, 3]).num_elements(), T([2, None]).num_elements(), T(None).num_elements()
        T(None).rank, T([2, 3]).rank, T([2, 3]).ndims, bool(T([])), bool(T(None))
        repr(T([2, 3]).most_specific_compatible_shape([4, 3]))
        T([2, None]).is_subtype_of(T([2, 3])), T([2, 3]).is_subtype_of(T([2, None]))
        {T([1, None]): 3}[T([1, None])]
    """,
    "structures": """
        tf.nest.flatten({"b": 1, "a": [2, (3,)]})
        tf.nest.flatten(None)
        tf.nest.map_structure(lambda x, y: x + y, [1, (2,)], [3, (4,)])
        tf.nest.map_structure(lambda x, y: x + y, [1, (2,)], [3, 4])
        tf.nest.map_structure(lambda x, y: x + y, [1, 2], (3, 4))
        tf.nest.map_structure(lambda x, y: x + y, [1, 2], (3, 4), check_types=False)
        tf.nest.map_structure(lambda x: x)
        tf.nest.map_structure(3, [1])
        tf.nest.map_structure(lambda x: x, [1], foo=1)
        tf.nest.assert_same_structure([1, 2], [1])
        tf.nest.assert_same_structure({"a": 1}, {"b": 1})
        tf.nest.assert_same_structure([1], 1)
        tf.nest.assert_same_structure([[1], 2], [1, [2]])
        tf.nest.pack_sequence_as([1, (2, 3)], [4, 5, 6])
        tf.nest.pack_sequence_as([1, (2, 3)], [4, 5])
        tf.nest.pack_sequence_as(1, [4])
        tf.nest.pack_sequence_as([1], 4)
        tf.nest.pack_sequence_as({"b": 1, "a": 2}, [3, 4])
        tf.nest.is_nested((1,)), tf.nest.is_nested("ab"), tf.nest.is_nested(np.ones(2))
    """,
    "random_draws": """
        tf.random.set_seed(1234)
        tf.random.uniform([3]), tf.random.uniform([3], -1, 1), tf.random.normal([3])
        tf.random.uniform([3], seed=1), tf.random.uniform([3], seed=1)
        tf.random.uniform([3], 0, 9, tf.int32, seed=1), tf.random.normal([3], seed=1)
        tf.random.truncated_normal([3], 1.0, 2.0, seed=7)
        tf.random.set_seed(1234)
        tf.random.uniform([3], seed=1), tf.random.uniform([3])
        tf.random.uniform([2], dtype=tf.int32)
        tf.random.uniform([2], 5, 3, dtype=tf.int32)
        tf.random.uniform([2], dtype=tf.int8)
        tf.random.normal([2], dtype=tf.int32)
        tf.random.uniform(3)
        tf.random.uniform([2.5])
        tf.random.uniform([-1])
        tf.random.stateless_uniform([3], [1, 2])
        tf.random.stateless_uniform([3], [-1, 2], 3.0, 5.0)
        tf.random.stateless_uniform([3], [1, 2], 1, 5, tf.int32)
        tf.random.stateless_uniform([3], [1, 2], minval=None, dtype=tf.int32)
        tf.random.stateless_uniform([3], [1, 2], dtype=tf.int32)
        tf.random.stateless_uniform([3], [1, 2, 3])
        tf.random.stateless_uniform([3], 5)
        tf.random.stateless_uniform([3], [1.0, 2.0])
        tf.random.stateless_normal([3], [1, 2], 5.0, 2.0)
        tf.random.stateless_truncated_normal([3], [3, 4])
        tf.random.categorical([0.0, 1.0], 5)
        tf.random.stateless_gamma([2], [1, 2], [1.0, 2.0, 3.0])
        tf.random.shuffle(5)
    """,
    "printing": """
        tf.print("a", x, output_stream=out)
        tf.print("a", x, summarize=2, output_stream=out)
        tf.print(m, m - 0.5, output_stream=out)
        tf.print(m, summarize=1, output_stream=out)
        tf.print({"a": x[0], "b": [m[0]]}, [1, 2], ("q", x), output_stream=out)
        tf.print(m[0, 0], 3, 2.5, "x", None, True, x > 7, output_stream=out)
        tf.print("a", "b", sep="-", end="!", output_stream=out)
        tf.print(tf.Variable([1.5, 2.0]), np.arange(3), output_stream=out)
        tf.print(m[None], summarize=1, output_stream=out)
        tf.print(m[0] * 3.14159265e-8, m[0] * 12345.6789, output_stream=out)
        tf.print(1 / m[0, :1], m[:0], output_stream=out)
        tf.print(1, output_stream="foo")
        tf.print(1, summarize="a")
    """,
    "checks": """
        D.assert_equal([1, 2], [1, 2]), D.assert_less(1, 2), D.assert_positive([1.0])
        D.assert_equal([1, 2], [1, 3])
        D.assert_equal([1, 2], [1, 3], message="mm", summarize=1)
        D.assert_equal([1, 2], [1, 2, 3])
        D.assert_equal(1, 2.0)
        D.assert_equal(True, False)
        D.assert_none_equal([1, 2], [1, 3])
        D.assert_near([1.0, 2.0], [1.0, 2.1])
        D.assert_near([1.0, 2.0], [1.0, 2.1], atol=0.2), D.assert_near(1.0, 1.0000001)
        D.assert_near(1, 2)
        D.assert_less([1, 2], [1, 3])
        D.assert_less_equal([1, 2], [0, 3])
        D.assert_greater([1, 2], [1, 3])
        D.assert_greater_equal([1, 2], [1, 3])
        D.assert_positive([0, 1])
        D.assert_non_negative([-1, 1])
        D.assert_negative([0, -1])
        D.assert_non_positive([1])
        D.assert_all_finite([1.0, np.nan], "mm")
        D.check_numerics([1.0, np.inf], "mm")
        D.check_numerics([1.0, 2.0], "mm")
        D.check_numerics([1], "mm")
        D.Assert(False, [1, [1, 2, 3, 4]])
        D.Assert(True, [1])
    """,
    "shape_checks": """
        D.assert_rank([1], 1), D.assert_rank_at_least([[1]], 1)
        D.assert_rank_in(1, [0])
        D.assert_rank([1], 2)
        D.assert_rank([1], 2, message="mm")
        D.assert_rank_at_least([1], 2)
        D.assert_rank_in([1], [0, 2])
        D.assert_shapes([(m, ("N", 2))])
        D.assert_shapes([(m, ("N", "Q")), (x, ("N",))])
        D.assert_shapes([(m, ("N", "Q")), (m, ("N", None)), (m[0], ("Q",))])
        D.assert_shapes([(m, ("...", 6)), (1.0, ())])
        D.assert_shapes([(m, (4, "..."))])
        D.assert_shapes([(m, ("...", 4))])
        D.assert_type(m, tf.float32)
        D.assert_type(m, tf.int32)
        D.assert_scalar([1])
        D.assert_scalar(1.5)
        D.assert_integer(x)
        D.assert_integer(m)
        D.is_numeric_tensor(x), D.is_numeric_tensor(x > 3)
        D.is_numeric_tensor(np.ones(2))
        D.assert_proper_iterable(m)
        D.assert_proper_iterable([1])
        D.assert_same_float_dtype([m, m]).name
        D.assert_same_float_dtype([x])
        D.get_log_device_placement()
    """,
    "control_flow": """
        tf.cond(x[0] < 1, lambda: 1, lambda: 2)
        tf.cond(True, lambda: (1, [2]), lambda: 3)
        tf.cond(False, 3, lambda: 1)
        tf.case([(x[0] > 1, lambda: 1), (x[1] > 0, lambda: 2)], default=lambda: 3)
        tf.case([(x[0] > 1, lambda: 1)], default=lambda: 3)
        tf.case([(x[0] > 1, lambda: 1)])
        tf.case([(True, lambda: 3)])
        tf.switch_case(x[1], [lambda: 10, lambda: 11])
        tf.switch_case(x[5], [lambda: 10])
        tf.switch_case(x[5], {0: lambda: 10, 1: lambda: 11}, default=lambda: 7)
        tf.switch_case(m[0, 0], [lambda: 10])
        tf.while_loop(lambda i: i < 5, lambda i: (i + 1,), (x[0],))
        tf.while_loop(lambda i, s: i < 5, lambda i, s: [i + 1, s + i], [x[0], x[0]])
        tf.while_loop(lambda i: i < 5, lambda i: [i + 1], [x[0]], maximum_iterations=2)
        tf.while_loop(lambda i: i < 5, lambda i: [i + 1, 2], [x[0]])
        tf.while_loop(lambda i: i < 5, lambda i: [i + 1], [])
    """,
    "tensor_array": """
        A(size=3).write(0, 1.0).stack()
        A(size=3).stack()
        A(size=3, element_shape=[2]).stack(), A(size=3, element_shape=[2]).read(0)
        A(size=3).read(0)
        A(size=3).read(3)
        A(size=3).read(-1)
        A(size=3).write(3, 1.0)
        A(size=3).write(-1, 1.0)
        A(size=3, dynamic_size=True).write(5, 1.0).size()
        A(size=0, dynamic_size=True).write(2, 1.0).stack()
        (lambda a: (a.read(0), a.read(0)))(A(size=2).write(0, 1.0))
        (lambda a: (a.read(0), a.stack()))(A(size=2).write(0, 1.0).write(1, 2.0))
        (lambda a: (a.write(0, 5.0).size(), a.stack()))(A(size=2).write(1, 1.0))
        (lambda a: [a.read(0)] * 2)(A(size=2, clear_after_read=False).write(0, 1.0))
        A(size=2).write(0, 1).read(0)
        A(size=2).write(0, x[0])
        A(size=2, element_shape=[2]).write(0, 1.0)
        A(size=2).write(0, 1.0).write(1, [1.0, 2.0])
        A(size=2, infer_shape=False).write(0, [1.0]).write(1, [1.0, 2.0]).concat()
        A(size=2, infer_shape=False).write(0, [1.0]).write(1, [1.0, 2.0]).stack()
        A(size=2).write(0, [1.0]).write(1, [2.0]).concat()
        A(size=2).write(0, 1.0).write(1, 2.0).concat()
        A(size=3).unstack([1.0, 2.0, 3.0]).gather([2, 0])
        A(size=3).unstack([1.0, 2.0, 3.0]).gather([2, 5])
        A(size=3).unstack([1.0, 2.0, 3.0, 4.0])
        A(size=3).unstack([1.0, 2.0]).stack()
        A(size=1, dynamic_size=True).unstack([1.0, 2.0]).stack()
        A(size=3).scatter([2, 0], [1.0, 2.0]).stack()
        A(size=3).scatter([2, 5], [1.0, 2.0])
        A(size=2, infer_shape=False).split([1.0, 2.0, 3.0], [1, 2]).read(1)
        A(size=3, infer_shape=False).split([1.0, 2.0, 3.0], [1, 2])
        A(size=2, infer_shape=False).split([1.0, 2.0, 3.0], [1, 1])
        A()
        A(size=2).size(), str(A(size=2).element_shape), A(size=2).dynamic_size
        str(A(size=2).write(0, [1.0, 2.0]).element_shape), A(size=2).close()
        A(size=3).write(1, [1.0, 2.0]).stack()
        A(size=3, element_shape=[None]).write(1, [1.0, 2.0]).identity().stack()
    """,
    "mapping": """
        tf.map_fn(lambda r: r * 2, x), tf.map_fn(lambda r: r[:2], m)
        tf.map_fn(lambda r: r * 2, x[0])
        tf.map_fn(lambda r: r[0] * r[1], (x, x), fn_output_signature=tf.int32)
        tf.map_fn(lambda r: r[0], m[:0])
        tf.map_fn(lambda r: (r, r), x)
        tf.map_fn(lambda r: r[0], (x, m))
        tf.map_fn(lambda r: m[0, 0], x)
        tf.scan(lambda a, r: a + r, x), tf.scan(lambda a, r: a + r, x, initializer=10)
        tf.scan(lambda a, r: a + r, x, reverse=True), tf.scan(lambda a, r: a + r, m)
        tf.scan(lambda a, r: (a[0] + r[0], a[1] * r[1]), (x, x + 1))
        tf.scan(lambda a, r: (a[1], a[0] + r), x, initializer=(x[0], x[1]))
        tf.foldl(lambda a, r: a * 2 + r, x), tf.foldr(lambda a, r: a * 2 + r, x)
        tf.foldl(lambda a, r: (a[0] + r, a[1]), x, initializer=(0, 1))
        tf.vectorized_map(lambda r: r * 2, x), tf.vectorized_map(lambda r: 7, x)
        tf.vectorized_map(lambda r: r[0] + r[1], (m, m + 1))
    """,
    "host_functions": """
        tf.py_function(lambda r: r * 2, [x], tf.int32)
        tf.numpy_function(np.sin, [m[0]], tf.float32)
        tf.numpy_function(lambda r: (r, r + 1), [m[0]], (tf.float32, tf.float32))
        tf.py_function(lambda r: r, [x], [tf.int32])
    """,
    "element_types": """
        tf.is_tensor(np.ones(2)), tf.is_tensor(tf.Variable(1.0)), tf.is_tensor(1)
        tf.is_tensor(tf.TensorSpec([1])), isinstance(tf.Variable(1.0), tf.Tensor)
        tf.as_dtype("float").name, tf.as_dtype("int32").name, tf.as_dtype(float).name
        tf.as_dtype(np.int64).name, tf.as_dtype(bool).name, tf.as_dtype("half").name
        tf.dtypes.as_dtype("foo")
        tf.as_dtype(int)
        tf.as_dtype(None)
        tf.group(3), tf.no_op()
    """,
}


def results(tf, topic):
    """Returns each expression of a topic with its value or the names of its errors."""
    names = {"tf": tf, "np": np, "T": tf.TensorShape, "D": tf.debugging}
    names["A"] = functools.partial(tf.TensorArray, tf.float32)
    names["x"] = tf.Variable(np.arange(10, dtype=np.int32)) + 0
    names["m"] = tf.Variable(np.arange(24, dtype=np.float32).reshape(4, 6)) + 0.0
    found = {}
    for line in filter(None, map(str.strip, PROGRAMS[topic].splitlines())):
        try:
            with tempfile.TemporaryDirectory() as folder:
                # TensorFlow writes to its own `stdout`, so it is asked for a file.
                file = pathlib.Path(folder, "printed")
                value = eval(line, {**names, "out": f"file://{file}"})
                printed = file.read_text(encoding="utf-8") if file.exists() else None
            found[line] = plain(value) if printed is None else printed
        except Exception as error:
            found[line] = {"raises": [c.__name__ for c in type(error).__mro__]}
    return found


def plain(value):
    """Returns a value as JSON keeps it."""
    if isinstance(value, dict):
        return {str(k): plain(v) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [plain(v) for v in value]
    if hasattr(value, "dtype") and hasattr(value, "numpy"):
        array = np.asarray(value)
        return {"type": array.dtype.name, "is": array.tolist()}
    return value.item() if isinstance(value, np.generic) else value


def stored():
    """Returns what TensorFlow gave, by topic."""
    return json.loads(STORE.read_text(encoding="utf-8"))


def check(tf, topic):
    """Asserts that unisono gives what TensorFlow gave."""
    wrong = {}
    for line, wanted in stored()[topic].items():
        given = results_of(tf, topic)[line]
        if not is_same(wanted, given):
            wrong[line] = (wanted, given)
    assert not wrong, f"expected what TensorFlow gives, received {wrong}."


@functools.cache
def results_of(tf, topic):
    """Returns the results of a topic, computed once."""
    return results(tf, topic)


def is_same(wanted, given):
    """Whether two results are the same: floats nearly, errors by a common kind."""
    if isinstance(wanted, dict) and "raises" in wanted:
        if not isinstance(given, dict) or "raises" not in given:
            return False
        return wanted["raises"][0] in given["raises"]
    if isinstance(wanted, dict) and "is" in wanted:
        return (
            isinstance(given, dict)
            and wanted["type"] == given.get("type")
            and np.shape(wanted["is"]) == np.shape(given["is"])
            and np.allclose(wanted["is"], given["is"], 1e-5, 1e-6, equal_nan=True)
        )
    if isinstance(wanted, list):
        return (
            isinstance(given, list)
            and len(wanted) == len(given)
            and all(map(is_same, wanted, given))
        )
    return wanted == given


if __name__ == "__main__":
    import tensorflow

    made = {topic: results(tensorflow, topic) for topic in PROGRAMS}
    STORE.write_text(json.dumps(made, indent=1) + "\n", encoding="utf-8")
