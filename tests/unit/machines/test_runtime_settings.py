"""Settings of TensorFlow's runtime are kept, and the log says that they do nothing."""

import logging

import pytest

import unisono
from unisono._src.machines import runtime_settings


@pytest.fixture(autouse=True)
def fresh(monkeypatch):
    settings = runtime_settings._Settings
    for name in ("jit", "inter_op", "intra_op"):
        monkeypatch.setattr(settings, name, getattr(settings, name))
    for name in ("options", "told"):
        monkeypatch.setattr(settings, name, type(getattr(settings, name))())


def test_settings_are_reported_as_they_were_set():
    optimizer, threading = unisono.config.optimizer, unisono.config.threading
    for given, kept in (("autoclustering", "autoclustering"), (False, "")):
        optimizer.set_jit(given)
        assert optimizer.get_jit() == kept
    optimizer.set_experimental_options({"remapping": True})
    optimizer.set_experimental_options({"constant_folding": False})
    assert optimizer.get_experimental_options() == {
        "remapping": True,
        "constant_folding": False,
    }
    threading.set_inter_op_parallelism_threads(2)
    threading.set_intra_op_parallelism_threads(3)
    assert threading.get_inter_op_parallelism_threads() == 2
    assert threading.get_intra_op_parallelism_threads() == 3


def test_the_log_says_once_that_a_setting_has_no_effect(caplog):
    caplog.set_level(logging.INFO, "unisono")
    for number in (1, 2):
        unisono.config.threading.set_inter_op_parallelism_threads(number)
    unisono.config.optimizer.set_jit(True)
    assert [r.getMessage().split(":")[0] for r in caplog.records] == [
        "config.threading.set_inter_op_parallelism_threads has no effect",
        "config.optimizer.set_jit has no effect",
    ]
