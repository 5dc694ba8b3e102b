"""Parameters that are sharded over devices: by which axis, gathered, and their sums."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P

from ssm_jax.kernels.axes import mark_varying
from ssm_jax.layers import ChannelMixing, ExpertChoiceMLP, RecurrentLayer
from ssm_jax.models import Block, SequenceModel, TokenEncoder
from ssm_jax.recurrences import DLR
from ssm_jax.sharding.parameters import (
    box_shards,
    gather,
    has_shards,
    shard_specs,
    strip_boxes,
    sum_gradients,
)
from ssm_jax.tasks import TaskSpec
from ssm_jax.training import Optimizer
from ssm_jax.training.parallel import DataParallel
from ssm_jax.training.state import abstract_state, create
from tests.training.test_mesh import Drawn

N = 4


@pytest.mark.parametrize(
    ("shape", "dtype", "spec"),
    [
        ((4096, 512), "float32", P("model")),  # a table of tokens, by its vocabulary
        ((512, 4096), "float32", P(None, "model")),  # a head, by its outputs
        ((256, 256), "float32", P("model")),
        ((8, 64, 1024), "float32", P("model")),  # experts
        ((3, 64, 1024), "float32", P(None, None, "model")),
        ((4097, 512), "float32", P(None, "model")),
        ((127, 129), "float32", P()),  # no axis that 4 divides
        ((128, 127), "float32", P()),  # 65,024 bytes
        ((128, 128), "float32", P("model")),  # 65,536 bytes
        ((128, 128), "bfloat16", P()),
        ((2**16,), "float32", P("model")),
        ((), "float32", P()),
        ((0, 4), "float32", P()),
    ],
)
def test_longest_axis_that_divides_is_sharded(shape, dtype, spec):
    leaf = jax.ShapeDtypeStruct(shape, dtype)
    assert shard_specs({"w": leaf}, "model", N) == {"w": spec}
    assert shard_specs({"w": leaf}, "model", 1) == {"w": P()}


@pytest.mark.full
def test_gradients_of_gathered_shards_are_those_of_whole_parameters():
    """Rows over both axes; one parameter is sharded, the other is not."""
    mesh = Mesh(np.array(jax.devices()).reshape(2, N), ("data", "model"))
    rng = np.random.default_rng(0)
    params = {
        "w": rng.normal(size=(128, 128)).astype(np.float32),
        "b": rng.normal(size=128).astype(np.float32),
    }
    x = rng.normal(size=(16, 128)).astype(np.float32)
    specs = shard_specs(params, "model", N)
    axes = ("data", "model")

    def loss(params, x):
        return jnp.sum(jnp.tanh(x @ params["w"] + params["b"]) ** 3)

    def gradient(shards, x):
        boxed = box_shards(shards, specs)
        assert has_shards(boxed) and boxed["w"].value.shape == (32, 128)
        varying = mark_varying(boxed, axes)
        found = jax.grad(lambda params: loss(gather(params), x))(varying)
        return strip_boxes(sum_gradients(found, axes))

    mapped = jax.shard_map(
        gradient, mesh=mesh, in_specs=(specs, P(axes)), out_specs=specs
    )
    found = jax.jit(mapped)(params, x)
    wanted = jax.grad(loss)(params, x)
    assert found["w"].sharding == NamedSharding(mesh, P("model"))
    for name, values in wanted.items():
        np.testing.assert_allclose(found[name], values, rtol=0, atol=2e-5)


def test_keys_to_leave_are_not_gathered():
    leaf = box_shards({"w": np.zeros(3)}, {"w": P("model")})
    assert gather({"block_0": leaf}, leave=("block_0",)) == {"block_0": leaf}
    plain = {"w": np.zeros(3)}
    assert gather(plain) is plain


VOCABULARY, WIDTH = 4096, 512
TASK = Drawn(
    TaskSpec(
        length=16,
        inputs="token",
        d_input=VOCABULARY,
        targets="classification",
        d_output=VOCABULARY,
        l_output=16,
        language=True,
    ),
    padded=False,
    resets=False,
)


@pytest.mark.full
@pytest.mark.parametrize("kind", ["adamw", "adafactor", "optax.contrib:muon"])
@pytest.mark.parametrize("shards", [2, 4, 8])
def test_each_device_has_its_part_of_parameters_and_optimizer(kind, shards):
    model = SequenceModel(
        encoder=TokenEncoder(WIDTH, VOCABULARY),
        block=Block(
            RecurrentLayer(DLR(d_state=64), ChannelMixing("glu")),
            feedforward=ExpertChoiceMLP(1024, n_experts=8),
            prenorm=True,
        ),
        n_layers=2,
        head=None,
    )
    optimizer = Optimizer(learning_rate=1e-3, kind=kind)
    _, state = abstract_state(lambda: create(model, TASK, optimizer, seed=0))
    parallel = DataParallel("shard_map", None, 1, shards)
    whole = mine = 0
    for leaf, sharding in zip(
        jax.tree.leaves((state.params, state.opt_state)),
        jax.tree.leaves(parallel.shardings((state.params, state.opt_state))),
        strict=True,
    ):
        if (n_bytes := leaf.size * leaf.dtype.itemsize) >= 2**16:
            whole += n_bytes
            shape = sharding.shard_shape(leaf.shape)
            mine += int(np.prod(shape)) * leaf.dtype.itemsize
    assert whole > 2**24
    assert mine <= 1.15 / shards * whole
