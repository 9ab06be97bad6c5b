from .common import tf, keras
