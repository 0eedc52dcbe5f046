"""The benchmark for GPUs runs without one, on tiny models: whoever rents a GPU finds a script that works."""

import json
import runpy
from pathlib import Path

SCRIPT = Path(__file__).parents[2] / "benchmarks" / "gpu.py"
ENGINES = ("transformers", "eager", "graph")


def test_it_measures_all_engines_on_the_same_rounds(tmp_path, capsys) -> None:
    output = tmp_path / "gpu.json"
    asked = f"--tiny --device cpu -k 3 --prompt 9 --tokens 16 --repeats 1 --output {output}"
    runpy.run_path(str(SCRIPT))["main"](asked.split())
    found = json.loads(output.read_text(encoding="utf-8"))
    for each in found["identity"].values():
        assert (each["fault"], each["near_ties"], each["emitted"]) == (False, 0, 16)
    assert found["identity"]["graph speculative"]["accepted"] > 0
    passes = found["target_passes"]
    assert {passes[f"{engine} plain"] for engine in ENGINES} == {16}
    (rounds,) = {passes[f"{engine} speculative"] for engine in ENGINES}
    assert rounds < 16
    assert found["pass_ms"].keys() == found["launches"].keys()
    assert all(len(times) == 2 and min(times) > 0 for times in found["pass_ms"].values())
    printed = capsys.readouterr().out
    assert "graph: c " in printed
    assert "transformers speculative" in printed
