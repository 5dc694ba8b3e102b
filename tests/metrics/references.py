"""Metrics by their definitions in numpy, in float64.

Each takes predictions, ``(n, k)``, and targets: values ``(n, k)``, or classes ``(n,)``.
"""

import numpy as np


def accuracy(logits, classes):
    return np.mean(logits.argmax(-1) == classes)


def nats(logits, classes):
    """The cross-entropy of each target."""
    logits = logits - logits.max(-1, keepdims=True)
    log_p = logits - np.log(np.exp(logits).sum(-1, keepdims=True))
    return -log_p[np.arange(len(classes)), classes]


def balanced_loss(logits, classes):
    of = nats(logits, classes)
    return np.mean([of[classes == each].mean() for each in np.unique(classes)])


def balanced_accuracy(logits, classes):
    hits = logits.argmax(-1) == classes
    return np.mean([hits[classes == each].mean() for each in np.unique(classes)])


def macro_f1(logits, classes):
    predicted, scores = logits.argmax(-1), []
    for each in np.union1d(classes, predicted):
        hits = np.sum((classes == each) & (predicted == each))
        scores.append(2 * hits / (np.sum(classes == each) + np.sum(predicted == each)))
    return np.mean(scores)


def auc(scores, classes):
    """The share of pairs of both classes that are in order, ties by half."""
    scores = np.asarray(scores, np.float64)
    below, above = scores[classes == 0], scores[classes == 1][:, None]
    return np.mean(above > below) + np.mean(above == below) / 2


def mse(values, expected):
    return np.mean((values - expected) ** 2)


REFERENCES = {
    "two classes": {
        "loss": lambda x, y: nats(x, y).mean(),
        "accuracy": accuracy,
        "auc": lambda x, y: auc(x[:, 1] - x[:, 0], y),
    },
    "balanced": {
        "loss": balanced_loss,
        "accuracy": accuracy,
        "macro_f1": macro_f1,
        "balanced_accuracy": balanced_accuracy,
    },
    "regression": {
        "loss": mse,
        "mae": lambda x, y: np.mean(np.abs(x - y)),
        "r2": lambda x, y: 1 - mse(x, y) / max(np.var(y), 1e-5),
    },
}
"""The metrics of each kind of targets."""
