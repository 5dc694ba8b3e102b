"""Sets made ready for the tasks, from files as their publishers distribute them.

No TensorFlow is needed. What is written is what TFDS's own builders would have written:
the same folders, the same names of features, and the same order of the examples; long
texts become folders of files.
`launch.prepare` is the command for it. Nothing here is imported by the tasks.
"""
