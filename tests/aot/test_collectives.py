"""Collectives that are read from HLO text."""

import textwrap

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import Mesh, PartitionSpec as P

from ssm_jax.aot import Collective, traffic
from tests.bad_inputs import refuses

ASYNC = """
    HloModule m

    %start (x: f32[16,128]) -> (f32[16,128], f32[128,128], u32[]) {
      %x = f32[16,128]{1,0} parameter(0)
      %a = f32[128,128]{1,0:T(8,128)} all-gather(%x), frontend_attributes={chain_id="0"}
      ROOT %c = (f32[16,128]{1,0}, f32[128,128]{1,0}, u32[]) custom-call(%a), \
custom_call_target="AsyncCollectiveStart"
    }

    %meanwhile (x.1: f32[16,128]) -> f32[128,128] {
      %x.1 = f32[16,128]{1,0} parameter(0)
      ROOT %a.1 = f32[128,128]{1,0} all-gather(%x.1), frontend_attributes={chain_id="0"}
    }

    %region (p: (s32[], f32[4])) -> (s32[], f32[4]) {
      %p = (s32[], f32[4]{0}) parameter(0)
      %g = f32[4]{0} get-tuple-element(%p), index=1
      %s = (f32[4]{0}, f32[4]{0}, u32[], u32[]) collective-permute-start(%g)
      ROOT %d = f32[4]{0} collective-permute-done(%s)
    }

    %limit (q: (s32[], f32[4])) -> pred[] {
      %n = s32[] constant(3)
      %q = (s32[], f32[4]{0}) parameter(0)
      %i = s32[] get-tuple-element(%q), index=0
      ROOT %lt = pred[] compare(%i, %n), direction=LT
    }

    ENTRY %main (w: f32[16,128], t: (s32[], f32[4])) -> bf16[8] {
      %w = f32[16,128]{1,0} parameter(0)
      %t = (s32[], f32[4]{0}) parameter(1)
      %f = (f32[16,128]{1,0}, f32[128,128]{1,0}, u32[]) fusion(%w), kind=kCustom, \
calls=%start
      %m = f32[128,128]{1,0} fusion(%w), kind=kCustom, calls=%meanwhile
      %loop = (s32[], f32[4]{0}) while(%t), condition=%limit, body=%region
      %b = bf16[64]{0} constant({...})
      %r = ((bf16[64]{0}), bf16[8]{0}) reduce-scatter-start(%b), calls=%wrapped
      ROOT %e = bf16[8]{0} reduce-scatter-done(%r)
    }
"""


def test_asynchronous_forms_count_once_and_bodies_of_loops_as_often_as_they_run():
    found = traffic(textwrap.dedent(ASYNC))
    assert found.collectives == (
        Collective("all-gather", 1, 4 * 128 * 128),
        Collective("reduce-scatter", 1, 2 * 64),
        Collective("collective-permute", 3, 3 * 16),
    )
    assert found.loops == (3,)
    assert found.exact


def test_loop_of_unknown_length_makes_counts_lower_bounds():
    text = textwrap.dedent(ASYNC).replace("direction=LT", "direction=NE")
    found = traffic(text)
    assert found.loops == (None,)
    assert not found.exact
    assert found.collectives[-1] == Collective("collective-permute", 1, 16)


def test_text_without_an_entry_is_refused():
    with refuses("text`"):
        traffic("")


@pytest.mark.full
def test_collectives_of_a_compiled_program_are_those_that_were_written():
    mesh = Mesh(np.array(jax.devices()), ("data",))
    n = mesh.size

    def step(w, x):
        def body(c, _):
            return jax.lax.pmax(c, "data") * 0.5, None

        c, _ = jax.lax.scan(body, x, None, length=5)
        y = jax.lax.ppermute(x, "data", [(i, (i + 1) % n) for i in range(n)])
        z = jax.lax.all_gather(x, "data", tiled=True)
        s = jax.lax.psum_scatter(jnp.sin(z), "data", tiled=True)
        return jax.lax.psum(w * jnp.sum(x), "data"), y + s + c

    mapped = jax.shard_map(
        step,
        mesh=mesh,
        in_specs=(P(), P("data")),
        out_specs=(P(), P("data")),
        check_vma=False,
    )
    w, x = jnp.ones(100), jnp.ones((n, 6))
    found = traffic(jax.jit(mapped).lower(w, x).compile().as_text())
    assert found.exact and found.loops == (5,)
    assert {one.kind: (one.count, one.bytes) for one in found.collectives} == {
        "all-reduce": (6, 5 * 6 * 4 + 100 * 4),
        "all-gather": (1, n * 6 * 4),
        "reduce-scatter": (1, n * 6 * 4),
        "collective-permute": (1, 6 * 4),
    }
