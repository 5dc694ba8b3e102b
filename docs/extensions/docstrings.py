"""Docstrings of this package, as Sphinx wants them: own sections and short names.

A name in backquotes is the shortest that a reader of the file needs: `LengthSharded` in
the docstring of a kernel is a class of another package. It becomes a link if it is the
end of a documented name, and else stands as it is. In the pages, the public names among
the ``literals`` become links likewise.
"""

import pydoc
import re

from docutils import nodes
from sphinx.domains.python import PyObject
from sphinx.util import logging
from sphinx.util.nodes import make_refnode

# `name: text` or `a, b: text`, an item of a section.
ITEM = re.compile(r"^( *)([\w*., ]+): ?(.*)$")
# An experiment and its variant, as in the tables of results.
EXPERIMENT = re.compile(r"\w+/\w+:\S+")
# What Flax adds to the arguments of every module.
FLAX_ARGUMENTS = re.compile(r", parent=<[^>]*>, name=None")
# The sections of Google's style, which napoleon knows.
KNOWN = {"args", "returns", "raises", "attributes", "yields", "example", "note"}

logger = logging.getLogger(__name__)


def setup(app):
    """Connects the functions below; the first two run before napoleon."""
    app.connect("autodoc-process-docstring", list_own_sections, priority=400)
    app.connect("autodoc-process-docstring", keep_sentences, priority=400)
    app.connect("autodoc-process-docstring", keep_commands)
    app.connect("autodoc-process-signature", leave_out_flax_arguments)
    app.connect("autodoc-skip-member", skip_fields)
    app.connect("missing-reference", link_short_name)
    app.connect("doctree-resolved", link_literals)
    app.connect("doctree-resolved", break_names_of_experiments)
    for field in PyObject.doc_field_types:
        if field.name == "variable":  # What napoleon makes of attributes.
            field.label = "Attributes"
    return {"parallel_read_safe": True, "parallel_write_safe": True}


def list_own_sections(app, what, name, obj, options, lines):
    """Writes the items of sections such as ``Parameters, float32:`` as a list."""
    new, inside = [], None
    for i, line in enumerate(lines):
        depth = len(line) - len(line.lstrip())
        if inside is not None and line.strip() and depth <= inside:
            inside = None
        if inside is None and _is_section_start(lines, i):
            inside = depth
            new += [line, ""]
        elif inside is not None and depth == inside + 2 and (item := ITEM.match(line)):
            names = ", ".join(f"``{name}``" for name in item[2].split(", "))
            new.append(f"{' ' * inside}- {names}: {item[3]}")
        elif inside is not None and depth > inside + 2:
            new.append(line[2:])  # Below the text of its item.
        else:
            new.append(line)
    lines[:] = new


def _is_section_start(lines, i):
    line = lines[i]
    title = line.strip().rstrip(":").split(" ")[0].lower()
    next_line = lines[i + 1] if i + 1 < len(lines) else ""
    depth = len(line) - len(line.lstrip())
    return (
        line.rstrip().endswith(":")
        and not line.rstrip().endswith("::")
        and title not in KNOWN
        and next_line.startswith(" " * (depth + 2))
        and ITEM.match(next_line) is not None
    )


def keep_sentences(app, what, name, obj, options, lines):
    """Keeps a colon in the first sentence of ``Returns:``, no sign of a type there."""
    for i, line in enumerate(lines[:-1]):
        first = lines[i + 1].strip()
        if line.strip() == "Returns:" and ": " in first and not first.startswith("`"):
            indent = len(lines[i + 1]) - len(lines[i + 1].lstrip())
            lines[i + 1] = f"{' ' * indent}: {first}"  # A type that is empty.


def keep_commands(app, what, name, obj, options, lines):
    """Shows the indented commands of a program's docstring as they are."""
    for i in reversed(range(1, len(lines))):
        if re.match(r" +(python -m|ssm-jax) ", lines[i]) and not lines[i - 1].strip():
            if not any(line.endswith("::") for line in lines[max(i - 2, 0) : i]):
                lines[i:i] = ["::", ""]


def leave_out_flax_arguments(app, what, name, obj, options, signature, returned):
    """Leaves ``parent`` and ``name`` out, which only Flax gives to a module."""
    return FLAX_ARGUMENTS.sub("", signature or "") or signature, returned


def skip_fields(app, what, name, obj, skip, options):
    """Leaves the fields of named tuples out; the class lists them."""
    return True if str(obj.__doc__).startswith("Alias for field number") else None


def link_short_name(app, env, node, contnode):
    """Links a name to the one documented name that ends with it."""
    if node.get("refdomain") != "py":
        return None
    target = node["reftarget"].removeprefix("~").removesuffix("()")
    objects = env.domains["py"].objects
    ends = [name for name in objects if f".{name}".endswith(f".{target}")]
    if not ends:
        _check_exists(target, node)
        return nodes.literal("", contnode.astext())
    # `restore` is a function, and the method of a class: the shortest is meant.
    full = min(ends, key=lambda name: (name.count("."), len(name)))
    entry = objects[full]
    return make_refnode(
        app.builder, node["refdoc"], entry.docname, entry.node_id, contnode, full
    )


def link_literals(app, doctree, docname):
    """Links a literal of a guide that is the name of a public object of a package."""
    if docname.startswith("api/"):  # There, literals are arguments and values too.
        return
    objects = app.env.domains["py"].objects
    public = {
        name.rpartition(".")[2]: name
        for name, entry in objects.items()
        if name.count(".") == 2 and entry.objtype in ("class", "function")
    }
    for literal in list(doctree.findall(nodes.literal)):
        full = public.get(literal.astext())
        # One word in lower case, such as `lengths`, may mean something else.
        if full is None or literal.astext().isalpha() and literal.astext().islower():
            continue
        if isinstance(literal.parent, nodes.reference | nodes.title):
            continue
        entry = objects[full]
        location = entry.docname, entry.node_id
        link = make_refnode(app.builder, docname, *location, literal.deepcopy(), full)
        literal.replace_self(link)


def break_names_of_experiments(app, doctree, docname):
    """Lets ``paper/task:name=value,...`` in a table break after colons and commas."""
    for text in list(doctree.findall(nodes.Text)):
        cell = text.parent.parent
        if isinstance(cell, nodes.entry) and EXPERIMENT.fullmatch(text):
            pieces = re.split(r"(?<=[:,])", text)
            new = [nodes.Text(pieces[0])]
            for piece in pieces[1:]:
                new += [nodes.raw("", "<wbr>", format="html"), nodes.Text(piece)]
            text.parent.replace(text, new)


def _check_exists(target, node):
    """Warns of a name of this package that does not exist."""
    if target.startswith("ssm_jax.") and pydoc.locate(target) is None:
        logger.warning("`%s` does not exist", target, location=node)
