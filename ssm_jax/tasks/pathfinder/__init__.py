"""Pathfinder, Path-X and Pathfinder-Segmentation: dashed curves in images.

`pathfinder` and `segmentation` hold the tasks, `drawing` the generator of their images
with `canvas` and `dashes` as its parts, `examples` draws or reads the images of a task,
and `prepare` writes them as a set in TFDS's folder format. A new variant of the images
is a new entry in `settings`.
"""
