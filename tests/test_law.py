"""The law that code, tests and pages cite by number is in ``docs/dev/protocol.md``, and so is its proof."""

from __future__ import annotations

import ast
import importlib
import re
from collections import Counter
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
LAW = ROOT / "docs" / "dev" / "protocol.md"
ROOMS = ("elf", "agents", "overlay", "spark_backend", "tests", "examples", "deploy", "docs")
ROOMS_OF_PLANTS = sorted(str(one.relative_to(ROOT)) for one in ROOT.glob("tests/chaos/plants/[a-z]*.py"))
PLANTED = (*ROOMS_OF_PLANTS, "tests/job/test_oracle.py", "tests/overlay/plants.py")
CITED = re.compile(r"\bprotocol\s+(\d+(?:\.\d+)*)")
OF_BEFORE = re.compile(r"\b(?:PROTOCOL|DESIGN)(?:\.md)?,?\s+(?:sections?\b|\d)|\bPROTOCOL\.md\b")
UNPROVED = "not proved by a plant"


def rules_of(page: str) -> dict[str, dict[str, str]]:
    """By number: the ``rule``, its ``Code`` and its ``Proof``."""
    found: dict[str, dict[str, str]] = {}
    for item in re.split(r"\n(?=- \*\*|## )", page)[1:]:
        if known := re.match(r"- \*\*(\d+\.\d+)\*\* ", item):
            number = known[1]
            assert number not in found, f"{number} is there twice"
            rule, *facts = re.split(r"\n  - (?=\w+: )", item[known.end() :])
            found[number] = {"rule": rule}
            for name, text in (fact.split(": ", 1) for fact in facts):
                found[number][name] = text
    return found


RULES = rules_of(LAW.read_text())


def quoted(text: str) -> list[str]:
    return re.findall(r"`([^`]+)`", text)


def texts() -> dict[Path, str]:
    """All code and all pages of the repository."""
    paths = [path for room in ROOMS for kind in ("py", "md") for path in (ROOT / room).rglob(f"*.{kind}")]
    return {path: path.read_text() for path in (*paths, *ROOT.glob("*.md"))}


TEXTS = texts()


@cache
def defined(path: str) -> dict[str, str]:
    """What a file defines, methods as ``Class.method``, with the docstrings."""
    kinds = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
    found = {}
    for node in ast.parse((ROOT / path).read_text()).body:
        if isinstance(node, kinds):
            found[node.name] = ast.get_docstring(node) or ""
            inner = [one for one in node.body if isinstance(one, kinds)]
            found |= {f"{node.name}.{one.name}": ast.get_docstring(one) or "" for one in inner}
    return found


@cache
def words_of_code() -> Counter[str]:
    """How often each word is in all code."""
    code = (text for file, text in TEXTS.items() if file.suffix == ".py")
    return Counter(word for text in code for word in re.findall(r"\w+", text))


def planted(path: str) -> dict[str, str]:
    """The planted bugs of a file, with their docstrings: what takes a ``patch``."""
    tree = ast.parse((ROOT / path).read_text())
    functions = [node for node in tree.body if isinstance(node, ast.FunctionDef)]
    return {
        node.name: ast.get_docstring(node) or ""
        for node in functions
        if [arg.arg for arg in node.args.args] == ["patch"]
    }


def test_every_rule_is_numbered_in_its_section_without_holes() -> None:
    sections = re.findall(r"^## (\d+)\. ", LAW.read_text(), re.M)
    assert sections == [str(n) for n in range(1, len(sections) + 1)]
    for section in sections:
        mine = [number.split(".")[1] for number in RULES if number.split(".")[0] == section]
        assert mine == [str(n) for n in range(1, len(mine) + 1)], section
        assert mine, section


@pytest.mark.parametrize("number", RULES)
def test_every_rule_has_a_reason_a_place_and_a_proof(number: str) -> None:
    rule = RULES[number]
    assert " *Why:* " in " ".join(rule["rule"].split())
    assert rule.keys() == {"rule", "Code", "Proof"}
    proofs = [proof.split("::")[0] for proof in quoted(rule["Proof"])]
    assert {*proofs} & {*PLANTED} or UNPROVED in rule["Proof"]
    assert proofs, "a plant, or whatever else holds the rule"


@pytest.mark.parametrize("number", RULES)
def test_every_place_and_every_proof_of_a_rule_exists(number: str) -> None:
    places, proofs = quoted(RULES[number]["Code"]), quoted(RULES[number]["Proof"])
    assert places
    for place in places:
        assert found(place), place
    for proof in proofs:
        path, name = proof.split("::")
        assert name in defined(path), proof
        assert path not in PLANTED or name in planted(path), proof


def found(place: str) -> bool:
    """Whether there is such a module, or such a thing in one."""
    names = place.split(".")
    for at in range(len(names), 0, -1):
        path = ROOT.joinpath(*names[:at])
        if path.with_suffix(".py").exists() or path.is_dir():
            thing: object = importlib.import_module(".".join(names[:at]))
            for name in names[at:]:
                thing = getattr(thing, name, None)
            return thing is not None
    return False


@pytest.mark.parametrize("path", PLANTED)
def test_every_planted_bug_says_which_rule_it_takes_out_and_proves_it(path: str) -> None:
    assert planted(path)
    for name, said in planted(path).items():
        mine = {number for number, rule in RULES.items() if f"{path}::{name}" in quoted(rule["Proof"])}
        assert mine, f"{path}::{name} proves no rule"
        assert {*CITED.findall(said)} == mine, (name, said)
        assert words_of_code()[name] > 1, f"no test plants {name}"


@pytest.mark.parametrize("path", ROOMS_OF_PLANTS)
def test_a_room_of_planted_bugs_is_about_one_section(path: str) -> None:
    (section,) = {CITED.findall(said)[0].split(".")[0] for said in planted(path).values()}
    assert f"section {section} of the protocol" in (ROOT / path).read_text().splitlines()[0]


def test_every_rule_that_is_cited_is_in_the_law() -> None:
    cited = [(path, number) for path, text in TEXTS.items() for number in CITED.findall(text)]
    assert len(cited) > 40
    for path, number in cited:
        assert number in RULES, f"{path.relative_to(ROOT)}: protocol {number}"
    for number in (one for rule in RULES.values() for one in re.findall(r"\((\d+\.\d+)\)", rule["rule"])):
        assert number in RULES, number


def test_nobody_cites_pages_that_are_not_here() -> None:
    for path, text in TEXTS.items():
        assert not (cited := OF_BEFORE.search(text)), f"{path.relative_to(ROOT)}: {cited[0]}"


def test_the_law_is_found_from_the_pages() -> None:
    assert "](docs/dev/protocol.md)" in (ROOT / "README.md").read_text()
    for link in re.findall(r"\]\(([^)#]+)\)", LAW.read_text()):
        assert (LAW.parent / link).exists(), link
