"""Language modelling, classification and retrieval on text.

`folder` (with `documents`) holds language modelling on text files; `imdb`, `glue` and
`retrieval` hold classification tasks, and `sentences` the code that the first two
share. `tokens`, `words` and `subwords` are the tokenizers, and ``prepare_*`` converts
the published files. A new task or tokenizer of text is a new file here.
"""
