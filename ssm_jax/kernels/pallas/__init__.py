"""Kernels in Pallas: the recurrence in one pass over memory, for GPUs and TPUs.

`solver` is what ``method="pallas"`` of `linear_recurrence` evaluates. ``b`` is read
once and ``h`` is written once; the state stays in registers or in VMEM. On a CPU the
kernel of the TPU is interpreted, which is slow and for tests only.
"""

from ssm_jax.kernels.pallas.dispatch import solver

__all__ = ["solver"]
