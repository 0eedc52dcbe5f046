"""Models behind one narrow seam, `runner.Runner`. The only layer that imports transformers."""

import sys

# Conversions would be reported to OpenVINO's makers unless the user had objected. Without the package
# that does it, OpenVINO and nncf put stubs in its place.
sys.modules.setdefault("openvino_telemetry", None)  # pyright: ignore[reportArgumentType]
