"""Experiments of the paper on diagonal linear RNNs, arXiv 2212.00768."""
