"""Sphinx extension: the API reference from docstrings, with signatures as they stand in the source.

Types keep their names and shapes (`Float[Tensor, "B M"]`), which autodoc would evaluate to something unreadable. Fields
of configurations and records are listed with type, default and description. A type of another package is shown as it
is; one of this library that no page documents stays a broken reference, which fails the build.
"""

from __future__ import annotations

import ast
import dataclasses
import inspect
import re
import sys
import textwrap
import tokenize
from collections.abc import Callable, Iterator
from functools import partial
from io import StringIO
from typing import Any

from docutils import nodes
from pydantic import BaseModel
from sphinx.addnodes import pending_xref
from sphinx.application import Sphinx
from sphinx.environment import BuildEnvironment

PACKAGE = "fcamlib"
# `code`, $formula$ and $$formula$$, in this order of precedence: a dollar inside code is no formula.
INLINE = re.compile(r"``(?P<literal>.+?)``|`(?P<code>[^`]+)`|\$(?P<math>[^$]+)\$")
EMPHASIS_SIGNS = re.compile(r"(?<![\\*])\*(?!\*)")
CELL = re.compile(r"(?:\$[^$]*\$|`[^`]*`|[^|])+")  # a bar in code or in a formula parts no cells
UNDERLINE = re.compile(r"\s*-{3,}\s*")


def convert_docstring(app: Sphinx, what: str, name: str, obj: Any, options: Any, lines: list[str]) -> None:
    """Rewrite a docstring for Sphinx, before napoleon reads its sections, and add the fields of a class."""
    role_of = partial(_role_of, namespace=_namespace(name))
    if what == "module":
        lines[:0] = [".. container:: module-name", "", f"   ``{name}``", ""]
    fields = list(_fields(obj)) if what == "class" else []
    has_parameters = any(line.strip() == "Parameters" for line in lines)
    lines[:] = to_rest(lines, role_of)
    if fields and not has_parameters:
        lines += ["", ".. list-table::", "   :header-rows: 1", "   :class: fields", "", "   * - field"]
        lines += ["     - type and default", "     - meaning"]
        for field, kind, default, meaning in fields:
            shown = f"``{kind}``" + (f" = ``{default}``" if default else "")
            cells = to_rest([meaning], role_of)
            lines += [f"   * - ``{field}``", f"     - {shown}", f"     - {' '.join(cells)}"]
        lines.append("")
    if what == "class" and (base := _base_with_fields(obj)):
        lines += ["", f"Further fields are those of :py:obj:`~{base}`.", ""]


def convert_property(app: Sphinx, what: str, name: str, obj: Any, options: Any, lines: list[str]) -> None:
    """Undo what napoleon does to a property, where it takes the words before a colon for a type."""
    if what == "property":
        text = (inspect.getdoc(obj) or "").splitlines()
        lines[:] = [*to_rest(text, partial(_role_of, namespace=_namespace(name))), ""]


def _role_of(code: str, namespace: dict[str, Any]) -> str:
    """The role of a name in backticks: a link where it may be one of the library's functions or classes."""
    target = _found(code.removesuffix("()"), namespace)
    is_ours = (inspect.isclass(target) or inspect.isroutine(target)) and target.__module__.startswith(PACKAGE)
    return ":py:obj:" if is_ours else ""


def to_rest(lines: list[str], role_of: Callable[[str], str]) -> list[str]:
    """A docstring's lines as reStructuredText, its sections left as they are.

    Parameters
    ----------
    lines : list of str
        The docstring, its common indentation removed.
    role_of : callable
        From a name in backticks to the role that it is shown with; empty for plain code.
    """
    converted: list[str] = []
    rest = list(source_before_sections(lines))
    while rest:
        if rest[0].strip().startswith("$$"):
            block, rest = _until(rest, lambda text: text.strip().removeprefix("$$").endswith("$$"))
            converted += display(block)
        elif rest[0].lstrip().startswith("|"):
            length = next((n for n, line in enumerate(rest) if not line.lstrip().startswith("|")), len(rest))
            converted += table(rest[:length], role_of)
            rest = rest[length:]
        else:
            # A span of code or a formula may run over the end of a line: a paragraph is converted as one.
            length = next((n for n, line in enumerate(rest) if n and _ends_paragraph(line)), len(rest))
            converted += inline("\n".join(rest[:length]), role_of).split("\n")
            rest = rest[length:]
    return converted


def _ends_paragraph(line: str) -> bool:
    return not line.strip() or line.strip().startswith("$$") or line.lstrip().startswith("|")


def _until(lines: list[str], is_last: Callable[[str], bool]) -> tuple[list[str], list[str]]:
    """The first lines up to the one that ends a block, and the rest."""
    end = next((n for n, line in enumerate(lines, 1) if is_last(line)), len(lines))
    return lines[:end], lines[end:]


def source_before_sections(lines: list[str]) -> list[str]:
    """The lines with a closing "Source: ..." put before the first section, where it belongs to no parameter."""
    first = next((n for n, line in enumerate(lines) if UNDERLINE.fullmatch(line)), 0) - 1
    start = next((n for n, line in enumerate(lines) if line.startswith("Source: ")), -1)
    if not 0 <= first < start:
        return lines
    end = next((n for n in range(start, len(lines)) if not lines[n].strip()), len(lines))
    return [*lines[:first], *lines[start:end], "", *lines[first:start], *lines[end:]]


def display(block: list[str]) -> list[str]:
    """A formula between double dollars as a block of its own."""
    indent = " " * (len(block[0]) - len(block[0].lstrip()))
    formula = "\n".join(block).strip().removeprefix("$$").removesuffix("$$")
    return ["", f"{indent}.. math::", "", *(f"{indent}   {line.strip()}" for line in formula.split("\n")), ""]


def table(rows: list[str], role_of: Callable[[str], str]) -> list[str]:
    """A Markdown table as a list-table with one header row."""
    indent = " " * (len(rows[0]) - len(rows[0].lstrip()))
    cells = [CELL.findall(row.strip().removeprefix("|").removesuffix("|")) for row in rows]
    lines = ["", f"{indent}.. list-table::", f"{indent}   :header-rows: 1", ""]
    for number, row in enumerate(cells):
        if number == 1:  # the rule below the header
            continue
        for column, cell in enumerate(map(str.strip, row)):
            lines.append(f"{indent}   {'*' if column == 0 else ' '} - {inline(cell, role_of)}".rstrip())
    return [*lines, ""]


def inline(text: str, role_of: Callable[[str], str]) -> str:
    """Code, formulas and stars of a piece of text."""
    pieces, last = [], 0
    for match in INLINE.finditer(text):
        pieces += [_escaped(text[last : match.start()]), _span(match, role_of)]
        last = match.end()
    converted = "".join([*pieces, _escaped(text[last:])])
    return converted


def _span(match: re.Match[str], role_of: Callable[[str], str]) -> str:
    """One span of code or one formula; a letter that follows at once needs an escaped blank between."""
    if match["math"]:
        span = f":math:`{' '.join(match['math'].split())}`"
    else:
        code = " ".join((match["literal"] or match["code"]).split())
        role = role_of(code)
        span = f"{role}`{code}`" if role else f"``{code}``"
    before, after = match.string[: match.start()][-1:], match.string[match.end() :][:1]
    return ("\\ " if before.isalnum() else "") + span + ("\\ " if after.isalnum() else "")


def _escaped(text: str) -> str:
    """Text whose stars and trailing underscores mean nothing to reStructuredText, `**bold**` left alone."""
    return re.sub(r"(?<=\w)_(?=\W|$)", r"\\_", EMPHASIS_SIGNS.sub(r"\\*", text))


def source_signature(
    app: Sphinx, what: str, name: str, obj: Any, options: Any, signature: str | None, returns: str | None
) -> tuple[str | None, str | None] | None:
    """Parameters and result with their types as written; no parameters for a class whose fields are listed."""
    if what == "class" and (dataclasses.is_dataclass(obj) or issubclass(obj, BaseModel)):
        return "", None
    node = _function_node(obj.__init__ if what == "class" else obj)
    if node is None:
        return None
    if what in ("class", "method") and node.args.args and node.args.args[0].arg in ("self", "cls"):
        del node.args.args[0]
    result = None if what == "class" or node.returns is None else ast.unparse(node.returns)
    return f"({ast.unparse(node.args)})", result


def _function_node(function: Any) -> ast.FunctionDef | None:
    """The definition of one of this library's functions; None for anything else, such as an inherited method."""
    function = inspect.unwrap(function)
    if not inspect.isfunction(function) or not function.__module__.startswith(PACKAGE):
        return None
    source = textwrap.dedent(inspect.getsource(function))
    node = ast.parse(source).body[0]
    return node if isinstance(node, ast.FunctionDef) else None


def _fields(cls: type) -> Iterator[tuple[str, str, str, str]]:
    """Name, type, default and meaning of each field that a configuration or record adds to its base."""
    described = cls.model_fields if issubclass(cls, BaseModel) else {}
    if not described and not dataclasses.is_dataclass(cls):
        return
    names = described or {field.name for field in dataclasses.fields(cls)}
    for name, kind, default, comment in _annotated(cls):
        if info := described.get(name):
            default = "" if info.is_required() else repr(info.default)
            comment = info.description or comment
        if name in names:
            yield name, kind, default, comment


def _base_with_fields(cls: type) -> str:
    """Name of the nearest base that has fields too; empty where there is none."""
    for base in cls.__mro__[1:]:
        if base.__module__.startswith(PACKAGE) and next(_fields(base), None):
            return f"{base.__module__}.{base.__qualname__}"
    return ""


def _annotated(cls: type) -> Iterator[tuple[str, str, str, str]]:
    """Name, type, default and trailing comment of each annotated name in the body of a class."""
    source = textwrap.dedent(inspect.getsource(cls))
    tokens = tokenize.generate_tokens(StringIO(source).readline)
    comments = {token.start[0]: token.string.lstrip("# ") for token in tokens if token.type == tokenize.COMMENT}
    (definition,) = ast.parse(source).body
    for node in definition.body if isinstance(definition, ast.ClassDef) else []:
        if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            default = "" if node.value is None or isinstance(node.value, ast.Call) else ast.unparse(node.value)
            kind = ast.unparse(node.annotation)
            yield node.target.id, kind, default, comments.get(node.end_lineno or node.lineno, "")


def _namespace(name: str) -> dict[str, Any]:
    """Names that can be used where a documented object stands: its class's, then its module's."""
    parts = name.split(".")
    for end in range(len(parts), 0, -1):
        if module := sys.modules.get(".".join(parts[:end])):
            return vars(module)
    return {}


def _found(dotted: str, namespace: dict[str, Any]) -> Any:
    """What a dotted name stands for in a namespace, or from the package's root; None where it stands for nothing."""
    if not re.fullmatch(r"[A-Za-z_][\w.]*", dotted):
        return None
    head, *rest = dotted.split(".")
    value = sys.modules.get(head) if head == PACKAGE else namespace.get(head)
    for part in rest:
        value = getattr(value, part, None)
    return value


def resolve(app: Sphinx, env: BuildEnvironment, node: pending_xref, contnode: nodes.Element) -> nodes.Element | None:
    """A name in a signature or in backticks: linked where the object has its entry, plain where it is another's."""
    if node.get("refdomain") != "py":
        return None
    module = sys.modules.get(node.get("py:module") or "")
    # What a module imports for type checkers alone is not in it: then any of the library's modules may know the name.
    places = [vars(module) if module else {}, *(vars(sys.modules[name]) for name in _library_modules())]
    target = next((found for place in places if (found := _found(node["reftarget"], place)) is not None), None)
    if inspect.isclass(target) or inspect.isroutine(target):
        full = f"{target.__module__}.{target.__qualname__}"
        domain = env.get_domain("py")
        if full in domain.data["objects"]:
            return domain.resolve_xref(env, node["refdoc"], app.builder, "obj", full, node, contnode)
        return contnode if node["reftype"] == "obj" or not full.startswith(PACKAGE) else None
    return contnode if target is not None or node["reftype"] == "obj" else None


def _library_modules() -> list[str]:
    return sorted(name for name in sys.modules if name.startswith(f"{PACKAGE}."))


def setup(app: Sphinx) -> dict[str, bool]:
    """Connect the steps to autodoc's and Sphinx's events."""
    app.setup_extension("sphinx.ext.autodoc")
    app.setup_extension("sphinx.ext.napoleon")
    app.connect("autodoc-process-docstring", convert_docstring, priority=100)  # napoleon follows at 500
    app.connect("autodoc-process-docstring", convert_property, priority=900)
    app.connect("autodoc-process-signature", source_signature)
    app.connect("missing-reference", resolve)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
