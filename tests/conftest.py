"""Toys are too small to share a pass between threads: waiting for each other takes longer than the work."""

import torch

from draftwise.models.devices import available_cores


def pytest_runtest_setup(item):
    real = "embedded" in item.path.parts
    torch.set_num_threads(available_cores() if real else 1)
