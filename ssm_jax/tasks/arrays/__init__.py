"""Tasks on arrays of the user: a file with all examples, or a source of them."""
