"""What took effect: part of every result, and the key under which measured costs are kept."""

import platform
from collections.abc import Mapping
from importlib.metadata import version
from importlib.util import find_spec

from draftwise.drafters.drafter import Drafter
from draftwise.drafters.mixed import Mixed
from draftwise.drafters.model import DraftModel
from draftwise.drafters.strings import StringDraft
from draftwise.models.devices import describe_machine
from draftwise.models.loading import LoadedModel
from draftwise.models.runner import Runner


def target_settings(target: LoadedModel, runner: Runner) -> dict[str, object]:
    """What took effect for a target, and where it runs."""
    return {
        "target": target.name,
        "runner": runner.info.name,
        "device": str(runner.info.device),
        "dtype": str(runner.info.dtype).removeprefix("torch."),
        "weights": runner.info.weights,
        "weight_bytes": runner.info.weight_bytes,
        "threads": runner.info.threads,
        "machine": describe_machine(),
    }


def draft_settings(drafter: Drafter) -> dict[str, object]:
    """What took effect for a drafter."""
    if isinstance(drafter, Mixed):
        own = {"draft": drafter.name, "draft_model": drafter.model.name}
        return draft_settings(drafter.model) | own
    settings: dict[str, object] = {"draft": drafter.name}
    if isinstance(drafter, DraftModel | StringDraft):
        info = drafter.runner.info
        dictionary = drafter.dictionary
        foreign = "string" if isinstance(drafter, StringDraft) else "intersection"
        settings |= {
            "foreign": foreign if dictionary else None,
            "shared_tokens": len(dictionary.overlap.to_draft) if dictionary else None,
            "draft_device": str(info.device),
            "draft_runner": info.name,
            "draft_weights": info.weights,
            "draft_dtype": str(info.dtype).removeprefix("torch."),
            "draft_weight_bytes": info.weight_bytes,
        }
    return settings


def in_words(settings: Mapping[str, object], threads: object, machine: object) -> str:
    """Where models ran and how: what of the settings decides about speed and numerics."""
    parts = [settings[name] for name in ("device", "dtype", "runner") if name in settings]
    if settings.get("weights", settings["dtype"]) != settings["dtype"]:
        parts.append(f"weights {settings['weights']}")
    if settings.get("draft_weights") != settings.get("draft_dtype"):
        parts.append(f"draft's weights {settings['draft_weights']}")
    return f"{', '.join(map(str, parts))}, {threads} threads, {machine}"


def versions() -> dict[str, str]:
    """Versions that decide about speed and numerics."""
    packages = ["draftwise", "torch", "transformers"]
    packages += ["openvino"] if find_spec("openvino") else []
    return {"python": platform.python_version()} | {name: version(name) for name in packages}
