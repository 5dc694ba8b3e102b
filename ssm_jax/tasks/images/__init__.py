"""Classification of images that are read pixel by pixel or row by row.

`digits` and `pixels` hold the tasks, `labelled` the batches that they share, and
``prepare_*`` the conversion of the published files. A new image classification task is
a new file here, or a class in `pixels` if it reads a prepared set of TFDS.
"""
