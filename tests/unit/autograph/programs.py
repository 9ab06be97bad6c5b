"""Small programs with Python's statements on tensors, for TensorFlow and unisono.

Each takes the library as ``tf`` and returns numbers. `record.py` runs them with
TensorFlow; `test_recorded.py` runs them here and compares.
"""
# ruff: noqa: B007, SIM108

import types
from typing import Any

PROGRAMS = {}


def program(fn):
    PROGRAMS[fn.__name__] = fn
    return fn


def f32(tf, x):
    return tf.constant(x, tf.float32)


@program
def if_else(tf):
    @tf.function
    def f(x):
        if x > 0:
            y = x * 2
        else:
            y = x - 1
        return y

    return [f(f32(tf, 3)), f(f32(tf, -3))]


@program
def if_without_else(tf):
    @tf.function
    def f(x):
        if tf.reduce_sum(x) > 3:
            x = x / 2
        return x

    return [f(f32(tf, [1, 1])), f(f32(tf, [3, 1]))]


@program
def elif_chain_with_returns(tf):
    @tf.function
    def f(x):
        if x < 0:
            return -1
        elif x == 0:
            return 0
        else:
            return 1

    return [f(f32(tf, v)) for v in (-2, 0, 5)]


@program
def nested_if(tf):
    @tf.function
    def f(x, y):
        z = x
        if x > 0:
            if y > 0:
                z = x + y
            else:
                z = x - y
        return z

    return [f(f32(tf, a), f32(tf, b)) for a in (1, -1) for b in (2, -2)]


@program
def conditional_expression(tf):
    @tf.function
    def f(x):
        return (x if x > 0 else -x) + (1.0 if x > 5 else 2.0)

    return [f(f32(tf, v)) for v in (-3, 3, 7)]


@program
def logic(tf):
    @tf.function
    def f(x, y):
        a = 0
        if x > 0 and y > 0:
            a += 1
        if x > 0 or y > 0:
            a += 10
        if not x > 0:
            a += 100
        if 0 < x < 3:
            a += 1000
        return a

    return [f(f32(tf, a), f32(tf, b)) for a in (-1, 1, 5) for b in (2, -2)]


@program
def while_loop(tf):
    @tf.function
    def f(x):
        n = 0
        while x < 100:
            x = x * 2
            n += 1
        return x, n

    return [*f(f32(tf, 3)), *f(f32(tf, 200))]


@program
def while_with_break_and_continue(tf):
    @tf.function
    def f(n):
        i = tf.constant(0)
        total = tf.constant(0)
        while i < n:
            i += 1
            if i % 2 == 0:
                continue
            if i > 8:
                break
            total += i
        return total, i

    return [*f(tf.constant(5)), *f(tf.constant(100))]


@program
def for_range_of_tensor(tf):
    @tf.function
    def f(n):
        total = 0
        for i in tf.range(n):
            total += i * i
        return total

    return [f(tf.constant(v)) for v in (0, 1, 10)]


@program
def for_range_of_number(tf):
    @tf.function
    def f(n):
        total = 0.0
        for i in tf.range(n):
            total += tf.cast(i, tf.float32)
        return total

    return [f(3), f(40)]


@program
def for_range_with_three_bounds(tf):
    @tf.function
    def f(a, b, c):
        out = 0
        for i in tf.range(a, b, c):
            out = out * 10 + i
        return out

    given = ((1, 6, 2), (5, 0, -2), (3, 4, 1))
    return [f(*(tf.constant(v) for v in t)) for t in given]


@program
def python_range_of_tensor(tf):
    @tf.function
    def f(n):
        total = 0
        for i in range(n):
            total += i
        return total

    return [f(tf.constant(5))]


@program
def for_over_tensor(tf):
    @tf.function
    def f(xs):
        best = xs[0]
        for x in xs:
            if x > best:
                best = x
        return best

    return [f(f32(tf, [1, 9, 4])), f(f32(tf, [-1, -9]))]


@program
def for_over_rows(tf):
    @tf.function
    def f(xs):
        total = tf.zeros([2])
        for row in xs:
            total = total * 2 + row
        return total

    return [f(f32(tf, [[1, 2], [3, 4], [5, 6]]))]


@program
def break_with_else(tf):
    @tf.function
    def f(xs, wanted):
        found = -1
        for i in tf.range(4):
            if xs[i] == wanted:
                found = i
                break
        if found < 0:
            found = 99
        return found

    return [f(tf.constant([4, 5, 6, 7]), tf.constant(v)) for v in (6, 1)]


@program
def nested_loops(tf):
    @tf.function
    def f(n):
        total = 0
        for i in tf.range(n):
            for j in tf.range(i):
                if j == 2:
                    continue
                total += i * j
        return total

    return [f(tf.constant(v)) for v in (1, 4, 6)]


@program
def nested_loops_with_break(tf):
    @tf.function
    def f(n):
        total = 0
        for i in tf.range(n):
            for j in tf.range(10):
                if j > i:
                    break
                total += j
            if total > 20:
                break
        return total, i

    return [*f(tf.constant(3)), *f(tf.constant(30))]


@program
def collatz(tf):
    @tf.function
    def f(n):
        steps = 0
        while n != 1:
            if n % 2 == 0:
                n = n // 2
            else:
                n = 3 * n + 1
            steps += 1
        return steps

    return [f(tf.constant(v)) for v in (1, 6, 27)]


@program
def gradient_through_if(tf):
    @tf.function
    def f(x):
        with tf.GradientTape() as tape:
            tape.watch(x)
            if x > 0:
                y = x * x
            else:
                y = -3 * x
        return y, tape.gradient(y, x)

    return [*f(f32(tf, 3)), *f(f32(tf, -2))]


@program
def gradient_through_for(tf):
    @tf.function
    def f(x):
        with tf.GradientTape() as tape:
            tape.watch(x)
            y = x
            for _ in tf.range(3):
                y = y * x
        return y, tape.gradient(y, x)

    return [*f(f32(tf, 2))]


@program
def gradient_through_for_with_break(tf):
    @tf.function
    def f(x):
        with tf.GradientTape() as tape:
            tape.watch(x)
            y = x
            for _ in tf.range(10):
                if y > 20:
                    break
                y = y * x
        return y, tape.gradient(y, x)

    return [*f(f32(tf, 2)), *f(f32(tf, 3))]


@program
def gradient_through_while_with_limit(tf):
    @tf.function
    def f(x):
        with tf.GradientTape() as tape:
            tape.watch(x)
            y = x
            while y < 50:
                tf.autograph.experimental.set_loop_options(maximum_iterations=12)
                y = y * x
        return y, tape.gradient(y, x)

    return [*f(f32(tf, 2)), *f(f32(tf, 4))]


@program
def gradient_of_variable_in_loop(tf):
    w = tf.Variable(1.5)

    @tf.function
    def f(xs):
        with tf.GradientTape() as tape:
            total = 0.0
            for x in xs:
                total += w * w * x
        return total, tape.gradient(total, w)

    return [*f(f32(tf, [1, 2, 3]))]


@program
def variable_assigned_in_branch(tf):
    v = tf.Variable(1.0)

    @tf.function
    def f(x):
        if x > 0:
            v.assign_add(x)
        return v.read_value()

    return [f(f32(tf, 3)), f(f32(tf, -3)), f(f32(tf, 1))]


@program
def variable_assigned_in_loop(tf):
    v = tf.Variable(1)

    @tf.function
    def f(n):
        for i in tf.range(n):
            v.assign_add(i)
            if v > 10:
                v.assign(v - 10)
        return v.read_value()

    return [f(tf.constant(v)) for v in (3, 6)]


@program
def loop_over_variable_value(tf):
    n = tf.Variable(4)

    @tf.function
    def f():
        total = 0
        for i in tf.range(n):
            total += i
        return total

    first = f()
    n.assign(6)
    return [first, f()]


@program
def tensor_array(tf):
    @tf.function
    def f(x):
        out = tf.TensorArray(tf.float32, size=4)
        for i in tf.range(4):
            if i % 2 == 0:
                out = out.write(i, x * tf.cast(i, tf.float32))
            else:
                out = out.write(i, -x)
        return out.stack()

    return [f(f32(tf, 3))]


@program
def tensor_array_of_rows(tf):
    @tf.function
    def f(xs):
        state = tf.zeros([2])
        out = tf.TensorArray(tf.float32, size=3)
        for t in tf.range(3):
            state = 0.5 * state + xs[t]
            out = out.write(t, state)
        return out.stack(), state

    return [*f(f32(tf, [[1, 2], [3, 4], [5, 6]]))]


@program
def greedy_decoder(tf):
    table = tf.constant([[0.1, 2.0, 0.3, 0.0], [0.0, 0.1, 3.0, 0.2], [0, 0, 0, 1.0]])

    @tf.function
    def decode(token, limit):
        out = tf.zeros([5], tf.int32)
        length = 0
        done = False
        while not done and length < limit:
            token = tf.argmax(table[token], output_type=tf.int32)
            out = tf.tensor_scatter_nd_update(out, [[length]], [token])
            length += 1
            done = token == 3
        return out, length

    return [
        *decode(tf.constant(0), tf.constant(5)),
        *decode(tf.constant(0), tf.constant(2)),
    ]


@program
def helper_and_method(tf):
    def clip(x):
        if x > 1:
            return 1.0
        return x

    class Model:
        def __init__(self):
            self.scale = 3.0
            self.bias = 1.0

        def call(self, x):
            if x < 0:
                x = -x * self.scale + self.bias
            return clip(x)

    model = Model()

    @tf.function
    def f(x):
        y = 0.0
        if x != 7:
            y = model.call(x)
        return y

    return [f(f32(tf, v)) for v in (-0.2, 0.5, 7)]


@program
def attributes_in_branches(tf):
    @tf.function
    def f(x):
        s = types.SimpleNamespace()
        s.count = 0
        s.total = x
        while s.total > 1:
            s.total = s.total / 2
            s.count += 1
        if s.count > 2:
            s.total = -s.total
        return s.total, s.count

    return [*f(f32(tf, 3)), *f(f32(tf, 40))]


@program
def closures_and_lambdas(tf):
    def make(limit):
        @tf.function
        def f(x):
            grow = lambda v: v * 2 if v < limit else v + 1  # noqa: E731

            def twice(v):
                for _ in tf.range(2):
                    v = grow(v)
                return v

            return twice(x)

        return f

    return [make(3)(f32(tf, 1)), make(100)(f32(tf, 5))]


@program
def decorated_helper(tf):
    import functools

    def traced(fn):
        @functools.wraps(fn)
        def wrapper(*args):
            if args[0] > 0:
                return fn(*args)
            return args[0]

        return wrapper

    @traced
    def root(x):
        while x > 2:
            x = tf.sqrt(x)
        return x

    @tf.function
    def f(x):
        return root(x)

    return [f(f32(tf, 100)), f(f32(tf, -1))]


@program
def inner_function(tf):
    @tf.function
    def inner(x):
        if x > 2:
            x = x - 2
        return x

    @tf.function
    def outer(x):
        for _ in tf.range(3):
            x = inner(x)
        return x

    return [outer(f32(tf, 9)), outer(f32(tf, 1))]


@program
def swap_in_loop(tf):
    @tf.function
    def fib(n):
        a, b = 0, 1
        for _ in tf.range(n):
            a, b = b, a + b
        return a

    return [fib(tf.constant(v)) for v in (0, 1, 10)]


@program
def structures_in_loop(tf):
    @tf.function
    def f(n):
        state: Any = {"a": 1, "b": (2.0, tf.zeros([2]))}
        for i in tf.range(n):
            state = {"a": state["a"] + i, "b": (state["b"][0] * 2, state["b"][1] + 1)}
        return state["a"], state["b"][0], state["b"][1]

    return [*f(tf.constant(3))]


@program
def temporary_names_in_branches(tf):
    @tf.function
    def f(x):
        if x > 0:
            t = x * 2
            y = t + 1
        else:
            t = "unused"
            y = x
        return y

    return [f(f32(tf, 2)), f(f32(tf, -2))]


@program
def name_first_defined_in_loop(tf):
    @tf.function
    def f(n):
        for i in tf.range(n):
            last = i * 10
        return last

    return [f(tf.constant(3)), f(tf.constant(1))]


@program
def try_around_if(tf):
    @tf.function
    def f(x):
        try:
            if x > 0:
                y = x * 2
            else:
                y = x
        except Exception:
            y = f32(tf, -99)
        return y

    return [f(f32(tf, 2)), f(f32(tf, -2))]


@program
def integers_and_casts(tf):
    @tf.function
    def f(x):
        n = int(x)
        if n > 2:
            return float(n) / 2
        return float(x)

    return [f(f32(tf, 5.7)), f(f32(tf, 1.5))]


@program
def strategy_run_with_branches(tf):
    strategy = tf.distribute.MirroredStrategy(["CPU:0"])
    with strategy.scope():
        local = {
            "synchronization": tf.VariableSynchronization.ON_READ,
            "aggregation": tf.VariableAggregation.SUM,
        }
        v = tf.Variable(1.0, **local)
        count = tf.Variable(0, **local)

    @tf.function
    def train(x):
        def step(x):
            if x > 0:
                v.assign_add(x)
                count.assign_add(1)
            else:
                v.assign(v * 0.5)
            return v.read_value()

        return strategy.run(step, args=(x,))

    values = [train(f32(tf, 3)), train(f32(tf, -3)), train(f32(tf, 1))]
    return [*values, count.read_value()]


@program
def loop_of_steps(tf):
    strategy = tf.distribute.MirroredStrategy(["CPU:0"])
    data = tf.data.Dataset.range(100).batch(4)
    iterator = iter(strategy.experimental_distribute_dataset(data))
    with strategy.scope():
        seen = tf.Variable(0, aggregation=tf.VariableAggregation.SUM)

    @tf.function
    def train(iterator, steps):
        total = tf.constant(0)

        def step(batch):
            seen.assign_add(1)
            return tf.cast(tf.reduce_sum(batch), tf.int32)

        for _ in tf.range(steps):
            total += strategy.run(step, args=(next(iterator),))
        return total

    first = train(iterator, tf.constant(3))
    return [first, train(iterator, tf.constant(7)), seen.read_value()]


@program
def loop_of_steps_with_break(tf):
    iterator = iter(tf.data.Dataset.range(1, 100))
    v = tf.Variable(0)

    @tf.function
    def train(iterator):
        for i in tf.range(50):
            v.assign_add(tf.cast(next(iterator), tf.int32))
            if v > 20:
                break
        return i

    return [train(iterator), v.read_value(), tf.cast(next(iterator), tf.int32)]


@program
def growing_array_in_counted_loop(tf):
    @tf.function
    def f(x):
        found = tf.TensorArray(tf.float32, size=0, dynamic_size=True)
        back = tf.TensorArray(tf.int32, size=1, dynamic_size=True)
        place = 1
        for i in tf.range(4):
            found = found.write(place, x)
            back = back.write(3 - i, i)
            place += 2
            x = x * 2.0
        return found.stack(), back.stack(), found.size(), x

    return list(f(f32(tf, [1.0, 3.0])))


@program
def growing_array_with_break(tf):
    @tf.function
    def f(x):
        found = tf.TensorArray(tf.float32, size=0, dynamic_size=True)
        for i in tf.range(20):
            found = found.write(i, x)
            x = x * 2.0
            if x > 20.0:
                break
        return found.stack()

    return [f(f32(tf, 1.0)), f(f32(tf, 9.0)), f(f32(tf, -1.0))]


@program
def growing_array_in_while(tf):
    @tf.function
    def f(n):
        found = tf.TensorArray(tf.int32, size=0, dynamic_size=True)
        count = 0
        while n != 1:
            found = found.write(count, n)
            n = n // 2 if n % 2 == 0 else 3 * n + 1
            count += 1
        return found.stack(), count

    return [*f(tf.constant(6)), *f(tf.constant(27)), f(tf.constant(1))[1]]


@program
def growing_array_in_branch(tf):
    @tf.function
    def f(xs):
        found = tf.TensorArray(tf.float32, size=0, dynamic_size=True)
        count = 0
        for x in xs:
            if x > 0.0:
                found = found.write(count, x)
                count += 1
        return found.stack()

    return [f(f32(tf, [1.0, -1.0, 3.0, -4.0, 5.0])), f(f32(tf, [-2.0, 7.0]))]


@program
def growing_array_in_nested_loops(tf):
    @tf.function
    def f(n):
        found = tf.TensorArray(tf.int32, size=0, dynamic_size=True)
        count = 0
        for i in tf.range(n):
            for j in tf.range(i):
                found = found.write(count, 10 * i + j)
                count += 1
        return found.stack()

    return [f(tf.constant(4)), f(tf.constant(2))]


@program
def growing_array_that_the_loop_reads(tf):
    @tf.function
    def f(n):
        found = tf.TensorArray(tf.int32, 0, dynamic_size=True, clear_after_read=False)
        found = found.write(0, 1)
        for i in tf.range(n):
            found = found.write(i + 1, tf.reduce_sum(found.stack()) + found.read(i))
        return found.stack()

    return [f(tf.constant(5)), f(tf.constant(1))]


@program
def growing_arrays_that_change_places(tf):
    @tf.function
    def f(n):
        a = tf.TensorArray(tf.int32, size=0, dynamic_size=True)
        b = tf.TensorArray(tf.int32, size=0, dynamic_size=True)
        for i in tf.range(n):
            a = a.write(i, i)
            b = b.write(i, -i)
            a, b = b, a
        return a.stack(), b.stack()

    return [*f(tf.constant(5)), *f(tf.constant(2))]


@program
def gradient_through_growing_arrays(tf):
    @tf.function
    def f(x, limit):
        with tf.GradientTape() as tape:
            tape.watch(x)
            y = x
            found = tf.TensorArray(tf.float32, size=0, dynamic_size=True)
            for i in tf.range(10):
                found = found.write(i, y)
                y = y * x
                if y > limit:
                    break
            loss = tf.reduce_sum(found.stack())
        return loss, tape.gradient(loss, x)

    @tf.function
    def counted(x):
        with tf.GradientTape() as tape:
            tape.watch(x)
            y = x
            found = tf.TensorArray(tf.float32, size=0, dynamic_size=True)
            for i in tf.range(4):
                found = found.write(i, y)
                y = y * x
            loss = tf.reduce_sum(found.stack())
        return tape.gradient(loss, x)

    x = f32(tf, 2.0)
    return [*f(x, f32(tf, 20.0)), *f(x, f32(tf, 5.0)), counted(x)]
