"""What took effect while something was measured, as records keep it."""

from collections.abc import Mapping

from draftwise.engine.settings import target_settings, versions
from draftwise.measure.records import Conditions
from draftwise.models.loading import LoadedModel
from draftwise.models.runner import Runner


def conditions(
    target: LoadedModel, runner: Runner, settings: Mapping[str, object] | None = None
) -> Conditions:
    """The conditions of a session with this target. settings: what else took effect in it."""
    effective = target_settings(target, runner) | dict(settings or {})
    named = {name: effective.pop(name) for name in ("target", "machine", "threads")}
    return Conditions.model_validate(named | {"settings": effective, "versions": versions()})
