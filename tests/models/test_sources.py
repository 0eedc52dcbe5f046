"""Names of models: a path, a Hub name or neither is told apart at once, each failure in a line."""

import shutil
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from huggingface_hub import constants
from huggingface_hub.utils import filter_repo_objects

from draftwise.core.errors import ModelError
from draftwise.models import sources
from draftwise.models.loading import load_model
from tests.models.toy_folders import one_line


@pytest.mark.parametrize(
    "name",
    [
        "./nowhere", "../nowhere/at/all", "/nowhere/model", "~/nowhere-at-all", "a/b/c", "C:model",
        "models\\toy", "toy.gguf", "owner/name.gguf", Path("owner/name"),
    ],
)  # fmt: skip
@pytest.mark.usefixtures("no_network")
def test_a_path_that_does_not_exist_fails_at_once_in_one_line(name: str | Path) -> None:
    began = time.monotonic()
    with pytest.raises(ModelError, match=r"^There is no folder or file ") as caught:
        load_model(name)
    assert time.monotonic() - began < 1
    assert Path(name).expanduser().name in one_line(caught)


@pytest.mark.usefixtures("no_network")
def test_a_bare_name_that_is_nothing_gets_the_nearest_built_in_name() -> None:
    with pytest.raises(ModelError, match=r"'smollm2-135'.*did you mean smollm2-135m\?"):
        load_model("smollm2-135")
    with pytest.raises(ModelError, match=r"'zzz'.*written owner/name: built in: .*smollm2-135m"):
        load_model("zzz")
    with pytest.raises(ModelError, match="''"):
        load_model("")


def test_a_file_that_is_no_gguf_says_what_to_give(folder: Path) -> None:
    with pytest.raises(ModelError, match=r"model\.safetensors is not a GGUF file: give"):
        load_model(str(folder / "model.safetensors"))


@dataclass
class Hub:
    """A Hub in a folder, and the local cache, empty at first. asked: the files fetched so far."""

    cache: Path
    files: Path
    asked: list[str]

    def put(self, name: str) -> None:
        snapshot = self.cache / "models--owner--toy/snapshots" / ("1" * 40)
        (snapshot / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(self.files / name, snapshot / name)
        refs = self.cache / "models--owner--toy/refs"
        refs.mkdir(exist_ok=True)
        (refs / "main").write_text("1" * 40)

    def download(self, name: str, allow_patterns: list[str], ignore_patterns: list[str]) -> str:
        assert name == "owner/toy"
        every = [str(path.relative_to(self.files)) for path in self.files.rglob("*.*")]
        for file in filter_repo_objects(
            every, allow_patterns=allow_patterns, ignore_patterns=ignore_patterns
        ):
            self.asked.append(file)
            self.put(file)
        return str(self.cache / "models--owner--toy/snapshots" / ("1" * 40))


@pytest.fixture
def hub(tmp_path: Path, folder: Path, monkeypatch: pytest.MonkeyPatch) -> Hub:
    hub = Hub(tmp_path / "cache", folder, [])
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(hub.cache))
    monkeypatch.setattr(sources, "snapshot_download", hub.download)
    return hub


def test_a_hub_name_fetches_the_model_once_and_nothing_that_is_not_needed(hub: Hub) -> None:
    for name in (
        "consolidated.safetensors",
        "pytorch_model.bin",
        "onnx/model.safetensors",
        "x.gguf",
    ):
        (hub.files / name).parent.mkdir(exist_ok=True)
        (hub.files / name).write_bytes(b"")
    assert load_model("owner/toy", device="cpu").source == "hub"
    assert sorted(hub.asked) == [
        "config.json",
        "generation_config.json",
        "model.safetensors",
        "tokenizer.json",
        "tokenizer_config.json",
    ]
    hub.asked.clear()
    assert load_model("owner/toy", device="cpu").name == "owner/toy"
    assert hub.asked == []


def test_what_is_missing_from_the_local_hub_cache_is_fetched(hub: Hub) -> None:
    hub.put("config.json")
    assert load_model("owner/toy", device="cpu").end_ids == {2}


@pytest.mark.usefixtures("no_network")
def test_offline_the_local_hub_cache_is_enough_or_the_switch_is_named(
    hub: Hub, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    monkeypatch.setattr(sources, "snapshot_download", None)
    with pytest.raises(ModelError, match=r"^owner/toy is not whole .*HF_HUB_OFFLINE"):
        load_model("owner/toy")
    for path in hub.files.iterdir():
        hub.put(path.name)
    assert load_model("owner/toy", device="cpu").source == "hub"


@pytest.fixture
def answer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[str], None]]:
    """A Hub that answers every question with the same refusal."""
    refusal = {"code": ""}

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(403 if refusal["code"] == "GatedRepo" else 404)
            self.send_header("X-Error-Code", refusal["code"])
            self.send_header("Content-Length", "0")
            self.end_headers()

        do_HEAD = do_GET

        def log_message(self, *args: object) -> None:
            return None

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
    monkeypatch.setattr(constants, "ENDPOINT", f"http://127.0.0.1:{server.server_port}")
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "cache"))
    yield lambda code: refusal.update(code=code)
    server.shutdown()
    server.server_close()


@pytest.mark.parametrize(
    ("code", "told"),
    [
        ("RepoNotFound", r"^The Hub has no model owner/toy that you may see"),
        ("GatedRepo", r"^owner/toy is gated: accept its terms"),
    ],
)
def test_a_refusal_of_the_hub_is_one_clear_line(
    answer: Callable[[str], None], code: str, told: str
) -> None:
    answer(code)
    with pytest.raises(ModelError, match=told) as caught:
        load_model("owner/toy")
    one_line(caught)


def test_a_hub_that_cannot_be_reached_is_one_clear_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(constants, "ENDPOINT", "http://127.0.0.1:9")
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "cache"))
    with pytest.raises(
        ModelError, match=r"^owner/toy is not in the local .* cannot be reached"
    ) as told:
        load_model("owner/toy")
    one_line(told)
