"""Memory of batches is used again, and stays behind when a plan is copied."""

import pickle

import numpy as np

import unisono as tf
from unisono._src.input.plan import host_buffers


def test_a_plan_with_memory_is_pickled_without_it():
    buffers = host_buffers.Buffers()
    kept = buffers.allocate((1 << 16,), np.uint8)
    assert pickle.loads(pickle.dumps(buffers)).allocate((4,), np.uint8).shape == (4,)
    assert kept.shape == (1 << 16,)


def test_batches_of_a_later_epoch_are_in_the_memory_of_an_earlier_one():
    rows = tf.data.Dataset.range(8).map(lambda x: tf.fill([1 << 14], x))
    made = rows.batch(4)
    first = {id_of(batch) for batch in made}
    assert {id_of(batch) for batch in made} & first


def id_of(batch):
    return np.asarray(batch).ctypes.data
