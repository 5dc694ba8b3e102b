"""Pathfinder and Path-X: whether a dashed curve connects two dots.

`pathfinder` holds the task, `drawing` the generator of its images with `canvas` and
`dashes` as its parts, and `prepare` writes the images as a set in TFDS's folder format.
A new variant of the images is a new entry in the settings of `drawing`.
"""
