"""Records of TFRecord files: the messages in them, and how to read these."""
