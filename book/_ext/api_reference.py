"""Sphinx extension: docstrings written with Markdown tables and dollar formulas, signatures as the source has them.

A name in backticks is a link where the API reference has an entry of that name, and code elsewhere. The fields of a
configuration are listed with type, default and description.
"""

import ast
import inspect
import re
import textwrap
from collections.abc import Iterator
from typing import Any

from pydantic import BaseModel
from sphinx.application import Sphinx

PACKAGE = "fcamlib"
# Code first: a dollar inside code is no formula.
INLINE = re.compile(
    r"``?(?P<code>[^`]+)``?|\$\$(?P<display>.+?)\$\$|\$(?P<math>[^$]+)\$|(?<!\*)(?P<star>\*)(?!\*)", re.S
)
CELL = re.compile(r"(?:\$[^$]*\$|`[^`]*`|[^|])+")  # a bar in code or in a formula separates no cells
TABLE = re.compile(r"(?:^[ ]*\|.*\n?)+", re.M)
SECTION = re.compile(r"^(?=[A-Z]\w+\n-{3,}\n)", re.M)
SOURCE = re.compile(r"^Source: (?:.+\n?)+", re.M)


def convert_docstring(app: Sphinx, what: str, name: str, obj: Any, options: Any, lines: list[str]) -> None:
    """Rewrite a docstring for Sphinx, before napoleon reads its sections."""
    text = "\n".join(lines)
    if (section := SECTION.search(text)) and (source := SOURCE.search(text, section.start())):
        # A closing source belongs to the object, not to its last parameter.
        text = text[: section.start()] + source[0].strip() + "\n\n" + text[section.start() : source.start()]
    text = INLINE.sub(_span, TABLE.sub(_table, text))
    if what == "module":
        text = f".. container:: module-name\n\n   ``{name}``\n\n{text}"
    fields = list(_fields(obj)) if what == "class" and issubclass(obj, BaseModel) else []
    if fields and "Parameters\n---" not in text:
        text += _rows([["field", "type and default", "meaning"], *fields], "   :class: fields\n")
    lines[:] = [*text.split("\n"), ""]


def _span(match: re.Match[str]) -> str:
    """Code, a formula or a lone star as reStructuredText; a letter next to it needs an escaped blank between."""
    if match["star"]:
        return "\\*"
    if match["display"]:
        indent = " " * (match.start() - match.string.rfind("\n", 0, match.start()) - 1)
        formula = f"\n{indent}   ".join(line.strip() for line in match["display"].strip().split("\n"))
        return f"\n{indent}.. math::\n\n{indent}   {formula}\n"
    words = " ".join((match["code"] or match["math"]).split())
    is_name = match["code"] and re.fullmatch(r"[A-Za-z_][\w.]*(\(\))?", words)
    role = ":math:" if match["math"] else ":py:obj:" if is_name else ""
    span = f"{role}`{words.removesuffix('()') if is_name else words}`" if role else f"``{words}``"
    before, after = match.string[: match.start()][-1:], match.string[match.end() :][:1]
    return ("\\ " if before.isalnum() else "") + span + ("\\ " if after.isalnum() else "")


def _table(match: re.Match[str]) -> str:
    """A Markdown table as a list-table with one header row."""
    rows = [CELL.findall(line.strip().removeprefix("|").removesuffix("|")) for line in match[0].strip().split("\n")]
    return _rows([[cell.strip() for cell in row] for row in (rows[0], *rows[2:])])


def _rows(rows: list[list[str]], option: str = "") -> str:
    """A list-table."""
    items = ("\n".join(f"   {'- -' if n == 0 else '  -'} {cell}" for n, cell in enumerate(row)) for row in rows)
    return f"\n\n.. list-table::\n   :header-rows: 1\n{option}\n" + "\n".join(items) + "\n"


def _fields(model: type[BaseModel]) -> Iterator[list[str]]:
    """Name, type with default, and description of the fields of a configuration."""
    kinds = {name: kind for base in reversed(model.__mro__) for name, kind in inspect.get_annotations(base).items()}
    for name, field in model.model_fields.items():
        default = "" if field.is_required() else f" = ``{field.default!r}``"
        kind = field.annotation.__name__ if isinstance(field.annotation, type) else kinds[name]  # no alias
        yield [f"``{name}``", f"``{kind}``{default}", field.description or ""]


def source_signature(app: Sphinx, what: str, name: str, obj: Any, options: Any, signature: Any, returns: Any) -> Any:
    """Parameters and result with their types as written, which autodoc would evaluate to something unreadable."""
    if what == "class" and issubclass(obj, BaseModel):
        return "", None
    function = inspect.unwrap(obj.__init__ if what == "class" else obj)
    if not inspect.isfunction(function) or not function.__module__.startswith(PACKAGE) or "<" in function.__qualname__:
        return None
    try:
        node = ast.parse(textwrap.dedent(inspect.getsource(function))).body[0]
    except OSError:  # the __init__ of a dataclass has no source: autodoc's signature is right
        return None
    assert isinstance(node, ast.FunctionDef)
    if node.args.args and node.args.args[0].arg in ("self", "cls"):
        del node.args.args[0]
    return f"({ast.unparse(node.args)})", ast.unparse(node.returns) if node.returns and what != "class" else None


def plain_where_unknown(app: Sphinx, env: Any, node: Any, contnode: Any) -> Any:
    """A name without an entry of its own is shown as code; one that a page asks for by its full name must exist."""
    is_python = node.get("refdomain") == "py"
    return contnode if is_python and (node["reftype"] == "obj" or not node["reftarget"].startswith(PACKAGE)) else None


def setup(app: Sphinx) -> dict[str, bool]:
    """Connect the steps to autodoc's and Sphinx's events."""
    app.setup_extension("sphinx.ext.autodoc")
    app.setup_extension("sphinx.ext.napoleon")
    app.connect("autodoc-process-docstring", convert_docstring, priority=100)  # napoleon follows at 500
    app.connect("autodoc-process-signature", source_signature)
    app.connect("missing-reference", plain_where_unknown)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
