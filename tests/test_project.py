"""What the project says of itself is true: pins, the map, the README."""

import re
import tomllib
from pathlib import Path

ROOT = Path(__file__).parent.parent
NAMES = re.compile(r"^[A-Za-z0-9_.-]+")


def normalised(name):
    return re.sub(r"[-_.]+", "-", name).lower()


def test_every_dependency_has_an_exact_pin():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    asked = [*project["dependencies"], *project["optional-dependencies"]["dev"]]
    lines = (ROOT / "constraints.txt").read_text().splitlines()
    pinned = {normalised(line.split("==")[0]) for line in lines if "==" in line}
    assert {normalised(NAMES.match(entry)[0]) for entry in asked} <= pinned


def test_the_map_has_a_line_for_every_module_and_no_other():
    text = (ROOT / "docs" / "architecture.md").read_text()
    rows = [line.split("|")[1] for line in text.splitlines() if line.startswith("| ")]
    mapped = {name for row in rows for name in re.findall(r"`([a-z_0-9]+)`", row)}
    modules = {
        path.stem
        for path in (ROOT / "src" / "draftwise").glob("*/*.py")
        if not path.stem.startswith("__")
    }
    assert modules == mapped


def test_the_readme_is_short_and_its_first_commands_are_those_two():
    lines = (ROOT / "README.md").read_text().splitlines()
    assert len(lines) <= 120
    commands = lines[lines.index("```") + 1 :]
    assert commands[:2] == ["make demo", "make test"]


def test_links_of_the_documents_lead_somewhere():
    for document in [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *(ROOT / "docs").rglob("*.md")]:
        for link in re.findall(r"\]\(([^)#]+)\)", document.read_text()):
            if not link.startswith("http"):
                assert (document.parent / link).exists(), f"{document.name}: {link}"


def test_the_names_in_the_glossary_exist():
    text = (ROOT / "docs" / "glossary.md").read_text()
    for module in set(
        re.findall(r"`((?:core|models|text|drafters|decoding|engine)\.[a-z_]+)", text)
    ):
        assert (ROOT / "src" / "draftwise" / f"{module.replace('.', '/')}.py").exists(), module
