"""What the tests of this layer share."""

import os
import socket
from pathlib import Path

import pytest
import torch
from transformers import PreTrainedModel

from draftwise.models.builtin import builtin_folder
from draftwise.models.runner import Runner
from draftwise.testing.toys import toy
from tests.models.rig import Made
from tests.models.toy_folders import toy_llama, toy_tokenizer


@pytest.fixture(scope="session")
def builtin_smollm() -> Path:
    """The folder of the light built-in model, fetched once a machine."""
    return builtin_folder("smollm2-135m")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A whole model in a folder."""
    toy_llama().save_pretrained(tmp_path / "toy")
    toy_tokenizer().save_pretrained(tmp_path / "toy")
    return tmp_path / "toy"


@pytest.fixture
def no_network(monkeypatch: pytest.MonkeyPatch) -> None:
    """Asking the network for anything fails the test."""

    def refuse(*args: object) -> None:
        raise AssertionError("the network was asked")

    monkeypatch.setattr(socket.socket, "connect", refuse)
    monkeypatch.setattr(socket, "getaddrinfo", refuse)


@pytest.fixture
def index(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty package index, and a cache of our own."""
    (index := tmp_path / "index").mkdir()
    for name in [name for name in os.environ if name.startswith("PIP_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(index))
    monkeypatch.setenv("DRAFTWISE_CACHE", str(tmp_path / "cache"))
    return index


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Made:
    """Toys of a kind and their runners, each converted for OpenVINO once."""
    pytest.importorskip("openvino")
    from draftwise.models.converting import convert
    from draftwise.models.openvino import OpenVinoRunner

    folders: dict[object, tuple[PreTrainedModel, Path]] = {}

    def make(kind: str, hidden: tuple[int, ...] = (), **options) -> tuple[PreTrainedModel, Runner]:
        if (key := (kind, hidden, str(options))) not in folders:
            model, folder = (
                toy(kind, **{"dtype": torch.float32} | options),
                tmp_path_factory.mktemp(kind),
            )
            convert(model, folder, str(model.dtype).removeprefix("torch."), 512, hidden)
            folders[key] = model, folder
        model, folder = folders[key]
        return model, OpenVinoRunner(folder, threads=1)

    return make
