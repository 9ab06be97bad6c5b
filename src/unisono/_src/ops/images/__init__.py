"""Images: files, decoding, sizes, colours and random changes, as in ``tf.image``."""
