"""A controller of one's own: summaries, checkpoints, timers."""
import os
import time

from absl import logging
import tensorflow as tf


class Controller:
    def __init__(self, trainer, global_step, manager=None, summary_dir=None):
        self.trainer, self.global_step, self.manager = trainer, global_step, manager
        self.writer = tf.summary.create_file_writer(summary_dir)
        if manager is not None:
            restored = manager.restore_or_initialize()
            logging.info("restored: %s", restored)

    def train(self, steps, at_once=100):
        with self.writer.as_default(), tf.summary.record_if(True):
            while self.global_step.numpy() < steps:
                begun = time.time()
                output = self.trainer.train(tf.convert_to_tensor(at_once, dtype=tf.int32))
                output = tf.nest.map_structure(lambda x: x.numpy(), output or {})
                for name, value in output.items():
                    tf.summary.scalar(name, value, step=self.global_step)
                tf.summary.scalar("seconds", time.time() - begun, step=self.global_step)
                self.writer.flush()
                if self.manager:
                    self.manager.save(checkpoint_number=self.global_step)

    def restore(self, path):
        checkpoint = tf.train.Checkpoint(step=self.global_step)
        status = checkpoint.restore(path)  #: differs format
        status.assert_existing_objects_matched().expect_partial()


def make(trainer, folder):
    step = tf.Variable(0, dtype=tf.int64)  #: differs 64
    checkpoint = tf.train.Checkpoint(step=step, trainer=trainer)
    manager = tf.train.CheckpointManager(
        checkpoint, os.path.join(folder, "ckpt"), max_to_keep=3, step_counter=step,
        checkpoint_interval=100, init_fn=None)
    if tf.io.gfile.exists(folder):
        tf.io.gfile.rmtree(folder)
    tf.io.gfile.makedirs(folder)
    return Controller(trainer, step, manager, folder)


def shapes(folder):
    reader = tf.train.load_checkpoint(tf.train.latest_checkpoint(folder))  #: differs format
    return reader.get_variable_to_shape_map()
