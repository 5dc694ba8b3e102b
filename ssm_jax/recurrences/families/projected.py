r"""Linear projections of running sums, computed by recurrences of their own.

Sums ``u_t^k = a_k u_{t-1}^k + c_t^k s_t`` of one statistic ``s``, ``d`` entries each,
are often used only through a linear map ``W u_t`` with ``r`` outputs. The part of it
that belongs to the sums of one decay ``a`` follows the same recurrence,

.. math:: W u_t = a W u_{t-1} + \left(\sum_k c_t^k W^k\right) s_t,

so that a step carries ``r`` entries instead of ``k d``, and multiplies by a ``d r``
matrix instead of a ``k d r`` one. The matrix depends only on the position of the step:
it is computed for all steps at once, and shared by rows with the same positions.
"""

import functools
from dataclasses import dataclass
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from ssm_jax.kernels.precision import matmul_f32
from ssm_jax.types import Array, Float


class ProjectionMatrices(NamedTuple):
    """A linear map, split by the representation of the sums.

    Attributes:
      own: Rows for the sums that are stored unprojected, ``(k d, r)``.
      mapped: Rows for the projected sums of each decay, each ``(k d, r)``.
      fixed: Map from ``s`` to the increment of the projected sums, ``(d, m r)``, if
        ``c`` is constant over time; else None.
    """

    own: Float[Array, "n r"]
    mapped: list[Float[Array, "_ r"]]
    fixed: Float[Array, "d m"] | None


@dataclass(frozen=True)
class ProjectedSums:
    """Representation of running sums from which a linear map of them is computed.

    The sums of one decay are stored projected, or unprojected if that is smaller.

    Attributes:
      decays: ``a``, of each sum.
      d: Number of entries of a sum.
      r: Number of outputs of the map.
    """

    decays: tuple[float, ...]
    d: int
    r: int

    @functools.cached_property
    def _groups(self) -> tuple[np.ndarray, list[np.ndarray]]:
        """Indices of the unprojected sums, and of the projected ones by decay."""
        decays = np.asarray(self.decays)
        # Only sums with the same decay can share a projection.
        # int32: JAX 0.10 mixes up int64 indices of NumPy with and without
        # `jax_enable_x64` in one process.
        groups = [
            np.flatnonzero(decays == a).astype(np.int32) for a in np.unique(decays)
        ]
        # Sums with no more entries than their projection are stored as they are.
        unprojected = [k for k in groups if len(k) * self.d <= self.r]
        projected = [k for k in groups if len(k) * self.d > self.r]
        # The empty array keeps the index dtype if no sum is unprojected.
        return np.concatenate([np.arange(0, dtype=np.int32), *unprojected]), projected

    @property
    def decay(self) -> Float[np.ndarray, " n"]:
        """Decay of each entry of the representation, in float64."""
        a, (unprojected, projected) = np.asarray(self.decays), self._groups
        # All sums of a group have the decay of its first one.
        group_decays = a[[k[0] for k in projected]]
        return np.concatenate(
            [a[unprojected].repeat(self.d), group_decays.repeat(self.r)]
        )

    def maps(
        self, kernel: Float[Array, "n r"], c: Float[Array, " k"] | None = None
    ) -> ProjectionMatrices:
        """Splits the map into its parts; ``c`` if it is constant over time."""
        kernel = kernel.reshape(len(self.decays), self.d, self.r)
        unprojected, projected = self._groups
        maps = ProjectionMatrices(
            kernel[unprojected].reshape(-1, self.r),
            [kernel[k].reshape(-1, self.r) for k in projected],
            None,
        )
        return maps if c is None else maps._replace(fixed=self.matrices(maps, c))

    def matrices(
        self, maps: ProjectionMatrices, c: Float[Array, "*c k"]
    ) -> Float[Array, "*c d m"] | None:
        """Returns the maps from ``s`` to projected increments, or None."""
        if not maps.mapped:
            return None
        # sum_k c^k W^k of all steps in one product, (l, k) by (k, d r).
        parts = [
            matmul_f32(_select(c, k, -1), kernel.reshape(len(k), -1)).reshape(
                *c.shape[:-1], self.d, self.r
            )
            for k, kernel in zip(self._groups[1], maps.mapped, strict=True)
        ]
        return jnp.concatenate(parts, -1)

    def project(
        self, maps: ProjectionMatrices, u: Float[Array, "*b n"]
    ) -> Float[Array, "*b v"]:
        """Returns the representation of the sums ``u``."""
        u, (unprojected, projected) = u.reshape(*u.shape[:-1], -1, self.d), self._groups

        def select(k):
            return _select(u, k, -2).reshape(*u.shape[:-2], len(k) * self.d)

        parts = [
            matmul_f32(select(k), kernel)
            for k, kernel in zip(projected, maps.mapped, strict=True)
        ]
        # An empty array of a sharded axis cannot be reshaped.
        return jnp.concatenate(
            [select(unprojected), *parts] if len(unprojected) else parts, -1
        )

    def increment(
        self,
        maps: ProjectionMatrices,
        c: Float[Array, "*c k"],
        s: Float[Array, "*b d"],
        matrix: Float[Array, "*c d m"] | None,
    ) -> Float[Array, "*b v"]:
        """Returns the representation of ``c s``, by ``matrix`` if it is given."""
        matrix = maps.fixed if matrix is None else matrix
        if matrix is None:
            # A matrix per row and step would be larger than this outer product.
            return self.project(maps, outer(c, s))
        # A row vector times the matrix of its own step.
        projected = jnp.matmul(s[..., None, :], matrix, precision="highest")[..., 0, :]
        if not len(self._groups[0]):
            return projected
        unprojected = outer(_select(c, self._groups[0], -1), s)
        return jnp.concatenate([unprojected, projected], -1)

    def recombine(
        self, maps: ProjectionMatrices, v: Float[Array, "*b v"]
    ) -> Float[Array, "*b r"]:
        """Returns ``W u`` from the representation of ``u``."""
        if not maps.mapped:
            return matmul_f32(v, maps.own)
        unprojected, projected = jnp.split(v, [len(maps.own)], -1)
        # The projections of different decays are parts of one sum W u.
        projected = jnp.sum(projected.reshape(*projected.shape[:-1], -1, self.r), -2)
        return (
            projected + matmul_f32(unprojected, maps.own)
            if len(maps.own)
            else projected
        )


def _select(values, indices, axis):
    """Selects ``values`` at increasing static indices.

    Consecutive indices are sliced: in `jax.shard_map` with ``check_vma=True`` the index
    array of a gather differs from the values in the axes that it varies over.
    """
    if not len(indices):
        return jax.lax.slice_in_dim(values, 0, 0, axis=axis)
    # Indices of a group are mostly consecutive, so there are few slices.
    runs = np.split(indices, np.flatnonzero(np.diff(indices) != 1) + 1)
    slices = [
        jax.lax.slice_in_dim(values, int(run[0]), int(run[-1]) + 1, axis=axis)
        for run in runs
    ]
    return jnp.concatenate(slices, axis)


def outer(c: Float[Array, "*c k"], s: Float[Array, "*b d"]) -> Float[Array, "*b n"]:
    """Returns ``c s`` for all sums, ``(*b, k d)``."""
    sums = c[..., :, None] * s[..., None, :]
    return sums.reshape(*sums.shape[:-2], -1)
