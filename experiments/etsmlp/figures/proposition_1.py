"""Proposition 1: gradients by ``lambda`` and ``lambda'`` near the unit circle.

    python -m experiments.etsmlp.figures.proposition_1 --output=gradients.png

The loss is ``log(sum_t y_t**2) / 2`` of the impulse response ``y``, so that
``sum_t dL/dy_t y_t = 1`` for every ``lambda``. The paper assumes that this sum is
bounded, and concludes that the gradients by both parts of ``lambda' = log log lambda``
are bounded. The figure shows:

- Towards 0, and along the real axis towards 1, where the gradient by ``lambda`` grows
  as ``1 / (1 - |lambda|)``, both parts stay below one. The real part does everywhere.
- Towards another point of the circle, at angle ``theta``, the imaginary part grows as
  ``theta / (2 (1 - |lambda|))``: it rotates ``log lambda``, which changes ``|lambda|``,
  and equation 11 omits the term for this. It is limited by the bound on
  ``|lambda**alpha|`` and by ``alpha``, which makes angles small.

Source: Chu and Lin, arXiv 2403.17445, 2024, section 3.1 and appendix A.
"""

import jax
import jax.numpy as jnp
import numpy as np
from matplotlib.figure import Figure

from experiments.figures import run
from ssm_jax.plots.style import PAGE, PALETTE, SMALL, figure, plain
from ssm_jax.recurrences import CES, convolution_kernel

ANGLES = (0.0, 0.1, 1.6)
_STEPS = 2**16
_SMOOTHING = CES(alpha=False, beta=False, shortcut="none", max_modulus=1.0)


def gradients(modulus: np.ndarray, angle: float) -> dict[str, np.ndarray]:
    """Computes the magnitudes of the gradients at points of the unit disc.

    Args:
      modulus: ``|lambda|``, ``(n,)``, above 0 and at most 0.9998, so that the response
        has decayed after 65,536 steps.
      angle: Phase of ``lambda``, radians.

    Returns:
      Gradients by ``lambda``, and by the real and the imaginary part of ``lambda'``,
      each ``(n,)``.

    Example:
      >>> norms = gradients(np.array([0.9, 0.999]), angle=0.0)
      >>> print({name: values.round(2).tolist() for name, values in norms.items()})
      {'lambda': [5.26, 500.25], 'real': [0.5, 0.5], 'imaginary': [0.0, 0.0]}
    """
    log = np.log(modulus) + 1j * angle
    loglog = np.log(log)

    @jax.jit
    @jax.grad
    def gradient(params):
        y = convolution_kernel(_SMOOTHING.modes(params), _STEPS)
        return jnp.sum(0.5 * jnp.log(jnp.sum(jnp.square(y), -1)))

    norms = gradient(
        {
            "loglog_re": jnp.asarray(np.real(loglog), jnp.float32),
            "loglog_im": jnp.asarray(np.imag(loglog), jnp.float32),
        }
    )
    real, imaginary = (np.abs(norms[name]) for name in ("loglog_re", "loglog_im"))
    # lambda is an analytic function of lambda'.
    by_lambda = np.hypot(real, imaginary) / np.abs(np.exp(log) * log)
    return {"lambda": by_lambda, "real": real, "imaginary": imaginary}


def draw() -> Figure:
    """Plots the gradients towards the circle and towards 0."""
    drawing = figure(PAGE, 4.2)
    panels = drawing.subplots(2, 3, sharey="row")
    panel_values = {
        "distance to the circle, 1 − |λ|": np.geomspace(2e-4, 0.5, 24),
        "|λ|": np.geomspace(1e-6, 0.5, 24),
    }
    for row, (name, values) in zip(panels, panel_values.items(), strict=True):
        modulus = 1 - values if name.endswith("1 − |λ|") else values
        norms = [gradients(modulus, angle) for angle in ANGLES]
        titles = ("by λ", "by Re λ'", "by Im λ'")
        for axes, index, title in zip(row, norms[0], titles, strict=True):
            for i, (angle, gradient_norms) in enumerate(
                zip(ANGLES, norms, strict=True)
            ):
                line = {"color": PALETTE[i], "linestyle": ("-", "--", ":")[i]}
                label = f"arg λ = {angle:g}" if angle else "real λ"
                axes.loglog(values, gradient_norms[index], label=label, **line)
            plain(axes, title=f"gradient {title}", x=name)
            axes.set_ylim(1e-4, 1e5)
    panels[0, 0].legend(fontsize=SMALL, frameon=False)
    return drawing


if __name__ == "__main__":
    run(draw)
