"""Result figures in Markdown: blocks between markers, written from the records.

A block is::

    <!-- results:NAME -->
    ...
    <!-- /results -->

and `experiments.ledger` writes its contents. In prose, published results are written as
``(paper: 14.8 %)``; other results must be inside a block, which
`tests/experiments/test_prose.py` checks.
"""

import re
from collections.abc import Mapping

BLOCK = re.compile(
    r"^<!-- results:(?P<name>\S+) -->\n(?P<content>.*?)^<!-- /results -->$",
    re.MULTILINE | re.DOTALL,
)


def with_results(text: str, contents: Mapping[str, str]) -> str:
    r"""Returns a text with the contents of its blocks replaced.

    Args:
      text: Markdown.
      contents: New contents of the blocks, by name.

    Raises:
      ValueError: A block has a name that is not in ``contents``, or a marker has no
        counterpart.

    Example:
      >>> old = "before\n<!-- results:a -->\nold\n<!-- /results -->\nafter"
      >>> print(with_results(old, {"a": "new"}))
      before
      <!-- results:a -->
      <BLANKLINE>
      new
      <!-- /results -->
      after
    """
    ends = len(re.findall(r"^<!-- /results -->$", text, re.MULTILINE))
    begins = len(re.findall(r"^<!-- results:", text, re.MULTILINE))
    if not begins == ends == len(BLOCK.findall(text)):
        raise ValueError(
            f"every block of results must begin and end with a marker, got {begins} "
            f"beginnings and {ends} ends; `<!-- results:NAME -->` ends with "
            "`<!-- /results -->`."
        )
    for match in BLOCK.finditer(text):
        if match["name"] not in contents:
            raise ValueError(
                f"every block of results must be one of {', '.join(contents)}, got "
                f"{match['name']}; correct the marker."
            )
    return BLOCK.sub(
        lambda match: (
            f"<!-- results:{match['name']} -->\n\n"
            f"{contents[match['name']].rstrip()}\n<!-- /results -->"
        ),
        text,
    )
