"""Tasks read from sets that `tensorflow_datasets` has prepared; no TensorFlow."""
