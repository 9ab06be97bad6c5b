"""Helpers of a world model: scans, distributions, modules."""
import pathlib

import numpy as np
import tensorflow as tf
import tensorflow.keras.mixed_precision as prec
import tensorflow_probability as tfp  #: missing substrates.jax
from tensorflow_probability import distributions as tfd  #: missing substrates.jax


def static_scan(fn, inputs, start):
    last = start
    outputs = [[] for _ in tf.nest.flatten(start)]
    for index in range(tf.nest.flatten(inputs)[0].shape[0]):
        inp = tf.nest.map_structure(lambda x: x[index], inputs)
        last = fn(last, inp)
        [o.append(l) for o, l in zip(outputs, tf.nest.flatten(last))]
    outputs = [tf.stack(x, 0) for x in outputs]
    return tf.nest.pack_sequence_as(start, outputs)


class RandomAgent:
    def __init__(self, logprob=False):
        self.logprob = logprob

    def __call__(self, obs, state=None):
        return {"action": tf.zeros([len(obs["reset"]), 3])}, None


class Module(tf.Module):
    def save(self, filename):
        values = tf.nest.map_structure(lambda x: x.numpy(), self.variables)
        pathlib.Path(filename).write_bytes(np.asarray(len(values)).tobytes())

    def get(self, name, ctor, *args, **kwargs):
        if not hasattr(self, "_modules"):
            self._modules = {}
        if name not in self._modules:
            self._modules[name] = ctor(*args, **kwargs)
        return self._modules[name]


class Optimizer(tf.Module):
    def __init__(self, name, lr):
        self._name = name
        self._opt = tf.optimizers.Adam(lr)
        self._opt = prec.LossScaleOptimizer(self._opt, dynamic=True)
        self._updates = tf.Variable(0, trainable=False, dtype=tf.int64)  #: differs 64

    def __call__(self, tape, loss, modules):
        assert loss.dtype is tf.float32, (self._name, loss.dtype)
        variables = tf.nest.flatten([m.trainable_variables for m in modules])
        with tape:
            loss = self._opt.get_scaled_loss(loss)  #: missing
        grads = tape.gradient(loss, variables)
        norm = tf.linalg.global_norm(grads)
        grads, _ = tf.clip_by_global_norm(grads, 100.0, norm)
        self._opt.apply_gradients(zip(grads, variables))
        self._updates.assign_add(1)
        return {f"{self._name}_loss": loss}


tf.config.run_functions_eagerly(False)
prec.set_global_policy(prec.Policy("mixed_float16"))
