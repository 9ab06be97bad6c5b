"""What workers are told to run with Keras; as in `scenarios`."""

import os
import tempfile
import time
import warnings

os.environ.setdefault("KERAS_BACKEND", "jax")

import keras
import numpy as np

import unisono as uni
from tests.multiprocess.scenarios import plain
from tests.unit.integrations.keras import replica_programs

layers = keras.layers


def data(count):
    """Returns inputs and integer labels."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(count, 5)).astype("float32")
    return x, rng.integers(0, 3, count).astype("int32")


def model_of(strategy, optimizer="adam"):
    """Makes a compiled model, the same on every call."""
    keras.utils.set_random_seed(7)
    with strategy.scope():
        model = keras.Sequential(
            [
                layers.Input((5,)),
                layers.Dense(4, activation="relu"),
                layers.BatchNormalization(),
                layers.Dropout(0.2),
                layers.Dense(3),
            ]
        )
        loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
        model.compile(optimizer, loss, metrics=["accuracy"])
    return model


def source(strategy, how, x, y, batch):
    """Returns the arguments of `fit` for one kind of input."""
    if how == "arrays":
        return {"x": x, "y": y, "batch_size": batch, "shuffle": True}
    made = uni.data.Dataset.from_tensor_slices((x, y)).shuffle(50, seed=4).batch(batch)
    if how == "distributed":
        made = strategy.experimental_distribute_dataset(made)
    return {"x": made}


def fit(s, w, how="arrays", count=19, batch=8, seed=None):
    """Fits, evaluates and predicts; returns all that comes out."""
    x, y = data(count)
    model = model_of(s)
    # Other numbers than the chief's, which must not matter.
    np.random.seed(100 + w if seed is None else seed)
    given = source(s, how, x, y, batch)
    history = model.fit(epochs=2, verbose=2, **given).history
    return plain(
        {
            "history": history,
            "evaluate": model.evaluate(x, y, batch_size=batch, verbose=0),
            "predict": model.predict(x, batch_size=batch, verbose=0),
            "weights": model.get_weights(),
        }
    )


def steps_of_replicas(s, w):
    """Fits models whose steps run on each replica; returns all that comes out."""
    return {
        program.__name__: plain(program(uni, keras, s))
        for program in (
            replica_programs.fit_with_a_tape,
            replica_programs.fit_with_callbacks,
            replica_programs.fit_with_the_steps_of_keras,
        )
    }


def files(s, w, directory):
    """Saves and loads Keras' own files, and a checkpoint, on all workers."""
    x, y = data(16)
    model = model_of(s)
    model.fit(x, y, batch_size=8, verbose=0, shuffle=False)
    # As in TensorFlow every worker calls `save`, each with a path of its own.
    model.save(f"{directory}/{w}.keras")
    model.save_weights(f"{directory}/{w}.weights.h5")
    wanted = model.get_weights()
    checkpoint = uni.train.Checkpoint(model=model)
    path = checkpoint.save(f"{directory}/c")
    with s.scope():
        loaded = keras.saving.load_model(f"{directory}/{w}.keras")
    other = model_of(s)
    uni.train.Checkpoint(model=other).restore(path).assert_consumed()
    third = model_of(s)
    with s.scope():
        third.optimizer.build(third.trainable_variables)
    third.load_weights(f"{directory}/{w}.weights.h5")
    made = [loaded, other, third]
    for one in made:
        assert one.distribute_strategy is s
    same = [
        all(np.array_equal(a, b) for a, b in zip(m.get_weights(), wanted)) for m in made
    ]
    return [same, plain(loaded.predict(x, batch_size=8, verbose=0))]


def edge(s, w):
    """Trains a model that gets weights and an optimizer outside, on an adopted base."""
    x, y = data(16)
    keras.utils.set_random_seed(7)
    base = keras.Sequential([layers.Input((5,)), layers.Dense(4)])
    s.adopt(base)
    with s.scope():
        model = keras.Sequential([base, layers.Dense(3)])
    model(x[:2])
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(keras.optimizers.Adam(0.01), loss, metrics=["accuracy"])
    model.fit(x, y, batch_size=8, verbose=0, shuffle=False)
    base.trainable = False
    metric = keras.metrics.SparseCategoricalAccuracy()
    model.compile(keras.optimizers.SGD(0.1), loss, metrics=[metric])
    model.fit(x, y, batch_size=8, verbose=0, shuffle=False)
    evaluated = model.evaluate(x, y, batch_size=8, verbose=0)
    return plain({"evaluate": evaluated, "weights": model.get_weights()})


def save_for_all(s, w, directory):
    """Saves a model on every worker, and loads the chief's file on all of them."""
    x, y = data(16)
    model = model_of(s)
    model.fit(x, y, batch_size=8, verbose=0, shuffle=False)
    is_chief = s.extended.should_checkpoint
    folder = directory if is_chief else tempfile.mkdtemp()
    model.save(f"{folder}/model.keras")
    s.barrier("the model is saved")
    with s.scope():
        loaded = keras.saving.load_model(f"{directory}/model.keras")
    pairs = zip(model.get_weights(), loaded.get_weights(), strict=True)
    return [os.listdir(directory), all(np.array_equal(a, b) for a, b in pairs)]


def callbacks(s, w):
    """Returns what callbacks see, which run on every worker."""
    seen = []

    class Noting(keras.callbacks.Callback):
        def on_train_batch_end(self, batch, logs=None):
            seen.append([batch, round(float(logs["loss"]), 5)])

        def on_epoch_end(self, epoch, logs=None):
            seen.append([epoch, sorted(logs)])

    x, y = data(19)
    model = model_of(s)
    model.fit(x, y, batch_size=8, callbacks=[Noting()], validation_split=0.2, verbose=2)
    return plain(seen)


def read_files(s, w, directory):
    """Fits on files that are dealt to the workers."""
    names = [f"{directory}/{i}.txt" for i in range(2)]
    lines = uni.data.TextLineDataset(names)
    rows = lines.map(lambda line: (np.full((5,), float(line), "float32"), 1.0))
    with s.scope():
        model = keras.Sequential([layers.Input((5,)), layers.Dense(1)])
        model.layers[0].kernel.assign(np.zeros((5, 1), "float32"))
        # The gradient is the sum of the inputs, to be divided by the size of a batch.
        model.compile(keras.optimizers.SGD(1.0), lambda y, p: p)
    seen = []

    class Noting(keras.callbacks.Callback):
        def on_train_batch_end(self, batch, logs=None):
            seen.append(batch)

    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Your input ran out of data")
        model.fit(rows.batch(4), epochs=1, verbose=0, callbacks=[Noting()])
    return [seen, plain(model.get_weights()[0][0])]


def lose_one(s, w):
    """Worker 1 ends within an epoch; returns what the other is told."""
    x, y = data(64)
    model = model_of(s)

    class Leaving(keras.callbacks.Callback):
        def on_train_batch_end(self, batch, logs=None):
            if w == 1 and batch == 3:
                os._exit(3)

    model.fit(x, y, batch_size=8, epochs=50, verbose=0, callbacks=[Leaving()])


def stop(s, w, who, at, how="arrays", count=64):
    """Some workers stop `fit` at a batch, or an epoch; returns what all did."""
    seen, asked = [], []
    kind, number = at

    class Stopping(keras.callbacks.Callback):
        def ask(self):
            if w in who and len([k for k, _ in seen if k == kind]) == number:
                asked.append(time.monotonic())
                self.model.stop_training = True

        def on_train_batch_end(self, batch, logs=None):
            seen.append(["batch", batch])
            self.ask()

        def on_epoch_end(self, epoch, logs=None):
            seen.append(["epoch", epoch])
            self.ask()

    x, y = data(count)
    model = model_of(s)
    given = source(s, how, x, y, 8)
    model.fit(
        epochs=40,
        verbose=0,
        callbacks=[Stopping()],
        validation_data=(x[:8], y[:8]),
        **given,
    )
    seconds = time.monotonic() - asked[0] if asked else 0.0
    stopped = int(model.optimizer.iterations)
    has_stopped = model.stop_training
    # The workers go on together after that.
    again = model.fit(epochs=2, verbose=0, **given).history["loss"]
    return plain(
        {
            "seconds": seconds,
            "seen": seen,
            "steps": stopped,
            "has_stopped": has_stopped,
            "again": again,
            "weights": model.get_weights(),
        }
    )


def early(s, w):
    """Returns how many epochs `fit` takes with a callback that stops on all workers."""
    x, y = data(16)
    model = model_of(s)
    stopping = keras.callbacks.EarlyStopping("loss", min_delta=100.0, patience=2)
    fit = model.fit(x, y, batch_size=8, epochs=9, verbose=0, callbacks=[stopping])
    return [len(fit.history["loss"]), stopping.stopped_epoch]


class Stop(Exception):
    pass


def backup(s, w, directory, how="arrays", stop=None):
    """Fits with backups, up to a batch if one is given; returns what came of it."""

    class Stopping(keras.callbacks.Callback):
        left = stop or 0

        def on_train_batch_end(self, batch, logs=None):
            self.left -= 1
            if self.left == 0:
                raise Stop

    x, y = data(30)
    model = model_of(s)
    # The chief's random numbers count, and those only until there is a backup.
    np.random.seed(w if stop else 50 + w)
    backup = uni.keras.callbacks.BackupAndRestore(directory, save_freq=2)
    given = source(s, how, x, y, 8)
    try:
        fit = model.fit(epochs=3, verbose=0, callbacks=[backup, Stopping()], **given)
    except Stop:
        return None
    return plain(
        {
            "weights": model.get_weights(),
            "loss": fit.history["loss"][-1],
            "steps": int(model.optimizer.iterations),
        }
    )


def fit_in_parts(s, w):
    """Fits a model whose weights may be split, saves it, and trains it by a tape."""
    x, y = data(32)
    keras.utils.set_random_seed(7)
    with s.scope():
        model = keras.Sequential(
            [layers.Input((5,)), layers.Dense(16, activation="tanh"), layers.Dense(4)]
        )
        loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
        model.compile("adam", loss)
    given = {"x": x, "y": y, "batch_size": 8, "shuffle": False}
    read = []
    callbacks = [
        keras.callbacks.EarlyStopping("loss", restore_best_weights=True),
        keras.callbacks.LambdaCallback(
            on_epoch_end=lambda *_: read.append(model.weights[0].numpy())
        ),
    ]
    history = model.fit(epochs=2, verbose=0, callbacks=callbacks, **given).history
    shown = repr(model.weights[0])
    optimizer = model.optimizer

    @uni.function
    def step(rows, labels):
        def replica(rows, labels):
            with uni.GradientTape() as tape:
                found = uni.reduce_mean(loss(labels, model(rows)))
            optimizer.apply_gradients(
                zip(
                    tape.gradient(found, model.trainable_variables),
                    model.trainable_variables,
                    strict=True,
                )
            )
            return found

        return s.reduce("MEAN", s.run(replica, args=(rows, labels)), axis=None)

    losses = []
    for _ in range(2):
        rows = s.experimental_distribute_values_from_function(lambda c: x[:4])
        labels = s.experimental_distribute_values_from_function(lambda c: y[:4])
        losses.append(float(step(rows, labels)))
    return plain(
        {
            "history": history,
            "losses": losses,
            "read": read,
            "evaluate": [model.evaluate(x, y, batch_size=8, verbose=0)],
            "predict": model.predict(x, batch_size=8, verbose=0),
            "weights": model.get_weights(),
            "shown": shown.count("part "),
        }
    )
