"""The directive ``program-flags``: the docstring of a program and its flags.

    .. program-flags:: train

It defines the flags of ``ssm_jax.cli.train`` as the program does, lists them with their
help and defaults, and removes them again.
"""

import importlib
import re
import sys
from contextlib import contextmanager

from absl import flags
from sphinx.util.docutils import SphinxDirective

from ssm_jax.cli.compile_cache import define_compile_cache


def setup(app):
    """Adds the directive."""
    app.add_directive("program-flags", ProgramFlags)
    return {"parallel_read_safe": True, "parallel_write_safe": True}


class ProgramFlags(SphinxDirective):
    """Writes the docstring of a program, and a definition of each of its flags."""

    required_arguments = 1

    def run(self):
        """Returns the nodes of the docstring and of the flags."""
        name = f"ssm_jax.cli.{self.arguments[0]}"
        lines = [f".. automodule:: {name}", "   :no-members:", ""]
        with _program_flags(importlib.import_module(name)) as defined:
            for flag in defined:
                lines += [_syntax(flag), f"    {_description(flag)}", ""]
        return self.parse_text_to_nodes("\n".join(lines))


@contextmanager
def _program_flags(module):
    """The flags that a program defines, by name; they are removed at the end."""
    known_names, arguments = set(flags.FLAGS), sys.argv
    # `new` reads its first argument, which here is one of Sphinx.
    sys.argv = arguments[:1]
    # All programs have it, and some change its default.
    define_compile_cache()
    module.define_flags()
    sys.argv = arguments
    names = sorted(set(flags.FLAGS) - known_names)
    try:
        yield [flags.FLAGS[name] for name in names]
    finally:
        for name in names:
            delattr(flags.FLAGS, name)


def _syntax(flag):
    return f"``--{'[no]' * bool(flag.boolean)}{flag.name}``"


def _description(flag):
    # A flag of several values ends its help with a sentence of absl.
    text, several, _ = flag.help.partition(";\n")
    text += " It may be given several times." * bool(several)
    # An enum begins its help with its values.
    if choice := re.fullmatch(r"<(.*?)>: (.*)", text):
        text = f"{choice[2]} One of {', '.join(choice[1].split('|'))}."
    text = re.sub(r"(--[\w.]+(=[\w.,|]+)?)", r"``\1``", " ".join(text.split()))
    if flag.default in (None, []):
        return text
    default = flag.default_as_str.strip("'").replace(",", ", ")
    return f"{text} Default: ``{default}``."
