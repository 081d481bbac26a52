"""Tests the rules that keep the code readable: import order, size budgets, docstrings, no module-level state.

CONTRIBUTING.md states these rules; docs/extending.md lists the files of a token's life.
"""

from __future__ import annotations

import ast
import importlib
import re
import statistics
import subprocess
import sys
from collections.abc import Iterator
from itertools import takewhile
from pathlib import Path

import pytest

from tests.support.documents import files_of_a_tokens_life

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "src" / "paceline"
IMPORT_ORDER = (
    "core",
    "config",
    "observability",
    "checkpoint",
    "tokenizer",
    "architectures",
    "machine",
    "sampling",
    "constraints",
    "backends",
    "kvcache",
    "drafters",
    "controller",
    "engine",
    "gateway",
    "operations",
    "cli",
)
GENERATED = "_pb2"  # protoc writes these files
PYTHON_FILES = sorted(path for path in PACKAGE.rglob("*.py") if GENERATED not in path.name)
ALL_PYTHON_FILES = sorted(
    path
    for folder in ("src", "tests", "benchmarks")
    for path in (ROOT / folder).rglob("*.py")
    if GENERATED not in path.name
)
NATIVE_FILES = sorted(path for path in (ROOT / "native").rglob("*") if path.suffix in {".cpp", ".hpp", ".h", ".inc"})
FUNCTION_NODES = (ast.FunctionDef, ast.AsyncFunctionDef)
MUTABLE_NODES = (ast.List, ast.Dict, ast.Set, ast.ListComp, ast.DictComp, ast.SetComp)
MUTABLE_CALLS = frozenset(
    {"list", "dict", "set", "defaultdict", "deque", "Counter", "OrderedDict", "bytearray", "count"}
)


def _parse(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"), str(path))


def _name(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


def _is_counted(line: str) -> bool:
    return bool(line.strip()) and not line.strip().startswith("#")


def _length(path: Path, node: ast.stmt) -> int:
    """Returns the number of lines of a function or class, without its docstring, blank lines and comment lines."""
    lines = path.read_text(encoding="utf-8").splitlines()[node.lineno - 1 : node.end_lineno]
    docstring = _docstring_lines(node)
    return sum(_is_counted(line) for number, line in enumerate(lines, node.lineno) if number not in docstring)


def _docstring_lines(node: ast.stmt) -> range:
    assert isinstance(node, (*FUNCTION_NODES, ast.ClassDef))
    if ast.get_docstring(node, clean=False) is None:
        return range(0)
    first = node.body[0]
    assert first.end_lineno is not None
    return range(first.lineno, first.end_lineno + 1)


def _nodes(kinds: tuple[type[ast.stmt], ...]) -> Iterator[tuple[Path, ast.stmt]]:
    for path in PYTHON_FILES:
        yield from ((path, node) for node in ast.walk(_parse(path)) if isinstance(node, kinds))


def _imported_modules(tree: ast.Module) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module is not None:
            assert node.level == 0, f"relative import at line {node.lineno}"
            yield node.module
            yield from (f"{node.module}.{alias.name}" for alias in node.names if node.module == "paceline")


def _package_of(path: Path) -> str:
    return path.relative_to(PACKAGE).parts[0]


@pytest.mark.parametrize("package", IMPORT_ORDER)
def test_a_package_imports_only_packages_before_it(package: str) -> None:
    allowed = {*takewhile(lambda name: name != package, IMPORT_ORDER), package}
    wrong = [
        f"{_name(path)} imports {module}"
        for path in sorted((PACKAGE / package).rglob("*.py"))
        for module in _imported_modules(_parse(path))
        if module.startswith("paceline.")
        and module.split(".")[1] in IMPORT_ORDER
        and module.split(".")[1] not in allowed
    ]
    assert wrong == []


def test_every_package_is_in_the_import_order() -> None:
    packages = {path.name for path in PACKAGE.iterdir() if path.is_dir() and path.name != "__pycache__"}
    assert packages == set(IMPORT_ORDER)


def test_few_places_use_the_native_core() -> None:
    """These are the native backend, the trees of the suffix drafter, and the probe of the machine's limits."""
    users = {
        path.relative_to(PACKAGE).parent.as_posix()
        for path in PYTHON_FILES
        for module in _imported_modules(_parse(path))
        if module.startswith("paceline._native")
    }
    assert users == {"backends/native", "drafters/suffix", "machine"}


def test_python_functions_are_short() -> None:
    lengths = {f"{_name(path)}:{node.lineno}": _length(path, node) for path, node in _nodes(FUNCTION_NODES)}
    ordered = sorted(lengths.values())
    assert statistics.median(ordered) <= 10
    assert ordered[int(0.9 * len(ordered))] <= 30
    assert {where: length for where, length in lengths.items() if length > 60} == {}


def test_python_classes_are_small() -> None:
    lengths = {f"{_name(path)}:{node.lineno}": _length(path, node) for path, node in _nodes((ast.ClassDef,))}
    assert {where: length for where, length in lengths.items() if length > 250} == {}


def test_python_files_are_small() -> None:
    lengths = {_name(path): len(path.read_text(encoding="utf-8").splitlines()) for path in PYTHON_FILES}
    assert {name: length for name, length in lengths.items() if length > 400} == {}


MOST_CONTROLLER_LINES = 900
MOST_CONTROLLER_CONSTANTS = 30


def test_the_controller_grows_no_further() -> None:
    """Counts its lines of code, and its numbers other than 0, 1, -1 and 2, including defaults of parameters. Decision
    022 says what each part brings; these limits should become smaller."""
    num_lines, constants = 0, list[float]()
    for path in sorted((PACKAGE / "controller").glob("*.py")):
        tree = _parse(path)
        documented = [node for node in ast.walk(tree) if isinstance(node, (*FUNCTION_NODES, ast.ClassDef))]
        docstrings = {line for node in documented for line in _docstring_lines(node)}
        if ast.get_docstring(tree) is not None:
            docstrings |= set(range(tree.body[0].lineno, (tree.body[0].end_lineno or 0) + 1))
        lines = path.read_text(encoding="utf-8").splitlines()
        num_lines += sum(_is_counted(line) for number, line in enumerate(lines, 1) if number not in docstrings)
        numbers = [node.value for node in ast.walk(tree) if isinstance(node, ast.Constant)]
        constants += [one for one in numbers if type(one) in (int, float) and one not in (0, 1, -1, 2)]
    assert num_lines <= MOST_CONTROLLER_LINES
    assert len(constants) <= MOST_CONTROLLER_CONSTANTS, constants


def _blank_cpp(source: str) -> str:
    """Returns the source without comments, strings and character literals, but with all line breaks."""
    pattern = r"//[^\n]*|/\*.*?\*/|\"(?:\\.|[^\"\\\n])*\"|'(?:\\.|[^'\\\n])+'"
    return re.sub(pattern, lambda match: "\n" * match.group().count("\n"), source, flags=re.DOTALL)


def _is_function_head(head: str) -> bool:
    """Returns whether the text before an opening brace is the head of a function or lambda, not of a namespace, a type
    or an initializer."""
    if re.search(r"\b(namespace|class|struct|union|enum|extern)\b[^()]*$", head):
        return False
    return ")" in head and re.search(r"\b(if|for|while|switch|catch)\s*\(", head) is None


def cpp_function_lengths(source: str) -> dict[int, int]:
    """Returns the number of lines of each outermost function body, by the line of its opening brace.

    It finds the bodies by counting braces.
    """
    lengths: dict[int, int] = {}
    stack: list[bool] = []
    head, line, start = "", 1, 0
    for character in _blank_cpp(source):
        line += character == "\n"
        if character == "{":
            is_function = True not in stack and _is_function_head(head)
            start = line if is_function else start
            stack.append(is_function)
        elif character == "}" and stack.pop():
            lengths[start] = line - start + 1
        head = "" if character in "{};" else head + character
    return lengths


def test_the_cpp_scanner_finds_functions() -> None:
    source = """namespace a {
struct B { int c{0};
  int d() const { return c; }
};
void e(int f) {
  if (f) { f = '{'; }  // }
}
}
"""
    assert cpp_function_lengths(source) == {3: 1, 5: 3}


def test_cpp_functions_are_short() -> None:
    assert NATIVE_FILES != []
    long = {
        f"{_name(path)}:{line}": length
        for path in NATIVE_FILES
        for line, length in cpp_function_lengths(path.read_text(encoding="utf-8")).items()
        if length > 120
    }
    assert long == {}


def test_cpp_files_are_small() -> None:
    lengths = {_name(path): len(path.read_text(encoding="utf-8").splitlines()) for path in NATIVE_FILES}
    assert {name: length for name, length in lengths.items() if length > 600} == {}


def _is_mutable_value(value: ast.expr | None) -> bool:
    if isinstance(value, ast.Call):
        name = value.func.attr if isinstance(value.func, ast.Attribute) else getattr(value.func, "id", "")
        return name in MUTABLE_CALLS
    return isinstance(value, MUTABLE_NODES)


def _module_level_mutables(tree: ast.Module) -> Iterator[int]:
    for node in tree.body:
        if isinstance(node, ast.Assign | ast.AnnAssign) and _is_mutable_value(node.value):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            if [getattr(target, "id", "") for target in targets] != ["__all__"]:
                yield node.lineno


def test_no_module_holds_mutable_state() -> None:
    found = [f"{_name(path)}:{line}" for path in PYTHON_FILES for line in _module_level_mutables(_parse(path))]
    found += [f"{_name(path)}:{node.lineno} global" for path, node in _nodes((ast.Global,))]
    assert found == []


def _docstring(path: Path) -> str | None:
    return ast.get_docstring(_parse(path))


def test_every_module_has_a_docstring() -> None:
    assert [_name(path) for path in PYTHON_FILES if not _docstring(path)] == []


def test_every_public_name_has_a_docstring() -> None:
    missing = [
        f"{_name(path)}:{node.lineno} {node.name}"
        for path in PYTHON_FILES
        for node in _parse(path).body
        if isinstance(node, (*FUNCTION_NODES, ast.ClassDef))
        and not node.name.startswith("_")
        and ast.get_docstring(node) is None
    ]
    assert missing == []


def test_no_file_is_a_catch_all() -> None:
    catch_all = {"utils", "util", "helpers", "helper", "misc", "common"}
    assert [_name(path) for path in (*ALL_PYTHON_FILES, *NATIVE_FILES) if path.stem in catch_all] == []


def test_no_test_is_skipped() -> None:
    marker = re.compile(r"pytest\.skip|mark\.skip|mark\.xfail|importorskip")
    files = [path for path in (ROOT / "tests").rglob("*.py") if path != Path(__file__)]
    assert [_name(path) for path in files if marker.search(path.read_text(encoding="utf-8"))] == []


def test_no_unfinished_work_is_left_in_the_source() -> None:
    marker = re.compile(r"\b(TODO|FIXME|XXX|HACK)\b|NotImplementedError")
    files = [*PYTHON_FILES, *NATIVE_FILES]
    assert [_name(path) for path in files if marker.search(path.read_text(encoding="utf-8"))] == []


@pytest.mark.parametrize("package", ["paceline", *(f"paceline.{name}" for name in IMPORT_ORDER)])
def test_exported_names_exist(package: str) -> None:
    module = importlib.import_module(package)
    assert [name for name in getattr(module, "__all__", []) if not hasattr(module, name)] == []


def _modules_after(statement: str) -> set[str]:
    code = f"{statement}; import sys; print(*sys.modules)"
    result = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    return set(result.stdout.split())


def test_import_of_the_package_is_cheap() -> None:
    heavy = {"numpy", "tokenizers", "fastapi", "pydantic", "zmq", "typer", "rich", "jinja2"}
    assert _modules_after("import paceline") & heavy == set()


def test_the_gateway_does_not_load_the_native_core() -> None:
    """`paceline serve` imports neither the native core nor the engine package in its own process."""
    loaded = _modules_after("import paceline.gateway, paceline.cli.serve, paceline.cli.model_files")
    assert "paceline.gateway.server" in loaded
    assert {name for name in loaded if name.startswith(("paceline._native", "paceline.engine"))} == set()


def test_no_package_imports_an_optional_dependency() -> None:
    optional = {"huggingface_hub", "openai", "gguf", "xllamacpp", "torch", "ray", "grpc", "pytest", "hypothesis"}
    statement = "; ".join(f"import paceline.{name}" for name in IMPORT_ORDER)
    assert _modules_after(statement) & optional == set()


def test_the_files_of_a_tokens_life_exist_and_are_small() -> None:
    files = files_of_a_tokens_life()
    assert 0 < len(files) <= 25
    lengths = {name: len((ROOT / name).read_text(encoding="utf-8").splitlines()) for name in files}
    assert {name: length for name, length in lengths.items() if length > 300} == {}


def test_every_test_folder_is_a_package() -> None:
    """Otherwise pytest cannot collect two test files with the same name in different folders."""
    folders = {path.parent for path in (ROOT / "tests").rglob("*.py")}
    assert sorted(str(folder) for folder in folders if not (folder / "__init__.py").is_file()) == []
