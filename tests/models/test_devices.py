"""Where and how a model runs: what is asked for is done or refused, what is not asked for fits."""

from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from draftwise.core.errors import ModelError, OptionError
from draftwise.models import devices
from draftwise.models.devices import (
    available_cores,
    describe_machine,
    pick_device,
    pick_dtype,
    set_threads,
    synchronizer,
)

CPU, CUDA, MPS = torch.device("cpu"), torch.device("cuda:0"), torch.device("mps")


@pytest.fixture
def threads() -> Iterator[int]:
    before = torch.get_num_threads()
    yield before
    torch.set_num_threads(before)


def hardware(monkeypatch: pytest.MonkeyPatch, cuda: int = 0, mps: bool = False) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: cuda > 0)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: cuda)
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: mps)


@pytest.mark.parametrize(
    ("cuda", "mps", "best"), [(2, True, "cuda"), (0, True, "mps"), (0, False, "cpu")]
)
def test_auto_takes_the_fastest_device_that_is_here(
    monkeypatch: pytest.MonkeyPatch, cuda: int, mps: bool, best: str
) -> None:
    hardware(monkeypatch, cuda, mps)
    assert pick_device("auto").type == best


def test_a_device_that_is_not_here_is_refused_in_one_line_that_says_what_is(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    hardware(monkeypatch)
    with pytest.raises(ModelError, match=r"^No cuda device .* choose auto or cpu\.$"):
        pick_device("cuda")
    hardware(monkeypatch, cuda=2)
    assert pick_device("cuda:1") == torch.device("cuda:1")
    with pytest.raises(ModelError, match=r"^No cuda:2 here: there are 2"):
        pick_device("cuda:2")


@pytest.mark.parametrize("name", ["gpu", "cuda:x", "cpu:0", "mps:1", "", "meta"])
def test_a_mistyped_device_is_told_from_an_absent_one(name: str) -> None:
    with pytest.raises(OptionError, match="auto, cpu, cuda, cuda:N or mps"):
        pick_device(name)


@pytest.mark.parametrize(
    ("flags", "expected"),
    [
        ("flags\t\t: fpu avx2 avx512f amx_bf16 amx_tile", torch.bfloat16),
        ("flags\t\t: fpu avx512_bf16", torch.bfloat16),
        ("Features\t: fp asimd bf16 i8mm", torch.bfloat16),
        ("flags\t\t: fpu avx2 avx512f", torch.float32),
        ("Features\t: fp asimd", torch.float32),
    ],
)
def test_on_a_cpu_auto_is_bfloat16_only_where_the_processor_has_it_in_hardware(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, flags: str, expected: torch.dtype
) -> None:
    (tmp_path / "proc").mkdir()
    second = "processor : 1\nflags : amx_bf16"
    (tmp_path / "proc/cpuinfo").write_text(f"processor : 0\n{flags}\nbogomips : 1\n\n{second}\n")
    real = devices._processor_flags
    monkeypatch.setattr(devices, "_processor_flags", lambda: real(tmp_path))
    assert pick_dtype("auto", CPU) == expected


def test_gpus_get_16_bits_and_an_asked_dtype_is_taken_as_it_is() -> None:
    assert pick_dtype("auto", MPS) == torch.float16
    assert pick_dtype("float64", CPU) == torch.float64
    assert pick_dtype("float32", CUDA) == torch.float32
    with pytest.raises(ModelError, match="mps has no float64"):
        pick_dtype("float64", MPS)
    with pytest.raises(OptionError, match=r"'fp16'.*float16"):
        pick_dtype("fp16", CPU)


def control_groups(root: Path, lines: str, files: dict[str, str]) -> Path:
    for name, text in {"proc/self/cgroup": lines, **files}.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return root


V2, V1 = "0::/app/worker\n", "4:memory:/other\n2:cpu,cpuacct:/app\n1:name=systemd:/\n"


@pytest.mark.parametrize(
    ("lines", "files", "cores"),
    [
        (V2, {"app/worker/cpu.max": "300000 100000"}, 3),
        (V2, {"app/worker/cpu.max": "max 100000", "app/cpu.max": "250000 100000"}, 2),
        (V2, {"app/worker/cpu.max": "50000 100000"}, 1),
        (V2, {"cpu.max": "200000 100000"}, 2),
        (V2, {"app/worker/cpu.max": "max 100000"}, 64),
        (V1, {"cpu/app/cpu.cfs_quota_us": "300000", "cpu/app/cpu.cfs_period_us": "100000"}, 3),
        (V1, {"cpu/cpu.cfs_quota_us": "400000", "cpu/cpu.cfs_period_us": "100000"}, 4),
        (V1, {"cpu/app/cpu.cfs_quota_us": "-1", "cpu/app/cpu.cfs_period_us": "100000"}, 64),
        (V1, {"cpu/other/cpu.cfs_quota_us": "9", "cpu/other/cpu.cfs_period_us": "9"}, 64),
    ],
)
def test_the_quota_of_the_control_groups_bounds_the_cores(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, lines: str, files: dict[str, str], cores: int
) -> None:
    monkeypatch.setattr("os.sched_getaffinity", lambda _: set(range(64)), raising=False)
    mounted = {f"sys/fs/cgroup/{name}": text for name, text in files.items()}
    assert available_cores(control_groups(tmp_path, lines, mounted)) == cores


def test_affinity_bounds_the_cores_where_no_quota_does(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr("os.sched_getaffinity", lambda _: {3, 5}, raising=False)
    assert available_cores(tmp_path) == 2


def test_threads_never_exceed_the_cores_that_this_process_may_use(
    monkeypatch: pytest.MonkeyPatch, threads: int
) -> None:
    monkeypatch.setattr(devices, "available_cores", lambda: 1)
    assert set_threads(1) == 1
    with pytest.raises(OptionError, match=r"7 threads asked for, .* may use 1 core\."):
        set_threads(7)
    with pytest.raises(OptionError, match="1 or more"):
        set_threads(0)
    assert torch.get_num_threads() == 1
    torch.set_num_threads(3)
    assert set_threads() == 1
    assert torch.get_num_threads() == 1


def test_the_machine_is_described_in_one_line_with_its_gpus(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    hardware(monkeypatch, cuda=2)
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda index: "Accelerator 9")
    monkeypatch.setattr(devices, "available_cores", lambda: 4)
    words = describe_machine()
    assert words.endswith(", 4 cores; 2 x Accelerator 9")
    assert len(words) < 120
    assert "\n" not in words


def test_waiting_for_the_device_names_the_device_that_was_meant(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    waited: list[object] = []
    monkeypatch.setattr(torch.cuda, "synchronize", waited.append)
    synchronizer(CUDA)()
    assert waited == [CUDA]
    assert synchronizer(CPU)() is None
