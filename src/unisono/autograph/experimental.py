"""Names of ``tf.autograph.experimental``, which change nothing here."""

from unisono._src.ops.execution_mode import do_not_convert, set_loop_options

__all__ = ["do_not_convert", "set_loop_options"]
