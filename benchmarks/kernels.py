"""Convolution kernels of modes, and all methods of the linear recurrence."""

import logging
from collections.abc import Iterable
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np

from benchmarks.exact import states
from benchmarks.measurement import Row, costs, ratios
from ssm_jax.kernels import LogDecay, linear_recurrence, modal_kernel
from ssm_jax.kernels.platforms import target_platform


def modal_kernel_rows(
    length: int, *, d: int = 128, n: int = 64, repeats: int
) -> Iterable[Row]:
    """Times `modal_kernel` and the usual array of exponentials.

    Args:
      length: Length of the kernels.
      d: Number of kernels.
      n: Number of modes, shared by all kernels.
      repeats: Number of timed runs of each.

    Yields:
      A row for each of the two, and one for the ratio of the usual to ours.
    """
    rng = np.random.default_rng(0)
    log = LogDecay(
        jnp.asarray(-rng.uniform(1e-4, 0.1, n), jnp.float32),
        jnp.asarray(2 * np.pi * np.arange(n) / n, jnp.float32),
    )
    w = rng.normal(size=(d, n, 2)) @ [1, 1j] / n
    w = jnp.asarray(w, jnp.complex64)

    def usual(log, w, length):
        exponent = jax.lax.complex(log.log_abs, log.phase)[:, None] * jnp.arange(length)
        return jnp.real(jnp.sum(w[:, :, None] * jnp.exp(exponent), -2))

    lam = np.asarray(log.log_abs, float) + 1j * np.asarray(log.phase, float)
    first = [np.exp(lam * t) @ np.asarray(w[0], complex) for t in range(length)]
    found = {}
    for name, function in (("usual", usual), ("modal_kernel", modal_kernel)):
        logging.info("%s, %d steps", name, length)
        kernels, exact = partial(function, length=length), np.real([first])
        found[name] = costs(kernels, log, w, exact=exact, repeats=repeats)
        yield {"what": name, "length": length} | found[name]
    ratio = ratios(found["usual"], found["modal_kernel"])
    yield {"what": "ratio", "length": length} | ratio


def recurrence_rows(length: int, *, n: int = 64, repeats: int) -> Iterable[Row]:
    """Times every method of `linear_recurrence`.

    Args:
      length: Sequence length.
      n: Number of complex states.
      repeats: Number of timed runs of each.

    Yields:
      A row for each kind of decay and each method that evaluates it.
    """
    rng = np.random.default_rng(0)
    b = jnp.asarray(rng.normal(size=(length, n, 2)) @ [1, 1j], jnp.complex64)
    log = LogDecay(
        jnp.asarray(-np.geomspace(1e-6, 0.1, n), jnp.float32),
        jnp.asarray(rng.uniform(-np.pi, np.pi, n), jnp.float32),
    )
    exponent = np.asarray(log.log_abs, float) + 1j * np.asarray(log.phase, float)
    varying = np.exp(exponent + 1j * rng.uniform(-0.1, 0.1, (length, n)))
    varying = jnp.asarray(varying, jnp.complex64)
    scans = ["sequential", "associative", "chunked"]
    # On a CPU it is interpreted.
    scans += ["pallas"] * (target_platform() != "cpu")
    for kind, a, numbers, methods in (
        ("constant", log, np.exp(exponent), [*scans, "fft"]),
        ("varying", varying, varying, scans),
    ):
        exact = states(numbers, b)
        for method in methods:
            logging.info("%s decay, %s, %d steps", kind, method, length)
            by_method = partial(_states, method=method)
            row = {"what": method, "decay": kind, "length": length}
            yield row | costs(by_method, a, b, exact=exact, repeats=repeats)


def _states(a, b, *, method):
    return linear_recurrence(a, b, method=method)[0]
