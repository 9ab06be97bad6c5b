"""Functions that workers of these tests import and call."""

import json
import os
import pathlib
import sys
import time


def index():
    return json.loads(os.environ["TF_CONFIG"])["task"]["index"]


def echo(*args, **kwargs):
    return [index(), args, kwargs]


def fail_on(worker, seconds=0.0):
    if index() == worker:
        raise KeyError(f"worker {worker}")
    time.sleep(seconds)
    return index()


def leave_with(code):
    sys.exit(code)


def sleep(seconds, note=None):
    if note:
        pathlib.Path(note).write_text(str(os.getpid()))
    time.sleep(seconds)


def make_object():
    return object()


def fail_until(restart):
    attempt = int(os.environ["UNISONO_RESTART"])
    if attempt < restart:
        raise ValueError("too early")
    return attempt


class Inner:
    @staticmethod
    def method(x):
        return x + index()


def say(text):
    print(text)
    print(text, file=sys.stderr)
