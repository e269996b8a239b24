"""Lines of code and modules per room of the package, and lines of tests.

Code is what is left without docstrings, comments and blank lines. Run from the root of the
repository: ``python benchmarks/size.py``.
"""

from __future__ import annotations

import argparse
import ast
import io
import tokenize
from collections import Counter
from pathlib import Path

_SILENT = {
    tokenize.COMMENT,
    tokenize.NL,
    tokenize.NEWLINE,
    tokenize.INDENT,
    tokenize.DEDENT,
    tokenize.ENCODING,
    tokenize.ENDMARKER,
}


def code_lines(source: str) -> int:
    """Lines of a module that hold a token other than a comment or a docstring."""
    lines: set[int] = set()
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type not in _SILENT:
            lines.update(range(token.start[0], token.end[0] + 1))
    for node in ast.walk(ast.parse(source)):
        # A bare string is a docstring wherever it stands, below a constant too.
        if not (isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)):
            continue
        if isinstance(node.value.value, str):
            lines.difference_update(range(node.lineno, (node.end_lineno or node.lineno) + 1))
    return len(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--modules", action="store_true", help="list every module")
    options = parser.parse_args()
    package = Path("src/pointdep")
    modules: Counter[str] = Counter()
    code: Counter[str] = Counter()
    total: Counter[str] = Counter()
    for path in sorted(package.rglob("*.py")):
        inside = path.relative_to(package)
        room = inside.parts[0] if len(inside.parts) > 1 else "(top)"
        text = path.read_text("utf-8")
        own = code_lines(text)
        modules[room] += 1
        code[room] += own
        total[room] += text.count("\n")
        if options.modules:
            print(f"{own:6,} {inside}")
    print(f"{'room':14} {'modules':>8} {'code':>8} {'lines':>8}")
    for room in sorted(modules):
        print(f"{room:14} {modules[room]:8,} {code[room]:8,} {total[room]:8,}")
    print(f"{'src':14} {modules.total():8,} {code.total():8,} {total.total():8,}")
    tests = sum(p.read_text("utf-8").count("\n") for p in Path("tests").rglob("*.py"))
    print(f"{'tests':14} {'':8} {'':8} {tests:8,}")


if __name__ == "__main__":
    main()
