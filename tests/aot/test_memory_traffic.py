"""Bytes that the kernels of a program move, read from HLO text."""

import textwrap

import jax
import jax.numpy as jnp

from ssm_jax.aot import bytes_moved, kernels_run

LOOP = textwrap.dedent("""
    HloModule m

    %slice_and_update (p: f32[4,8], q: f32[4,8], i: s32[]) -> f32[4,8] {
      %p = f32[4,8]{1,0} parameter(0)
      %q = f32[4,8]{1,0} parameter(1)
      %i = s32[] parameter(2)
      %zero = s32[] constant(0)
      %row = f32[1,8]{1,0} dynamic-slice(%p, %i, %zero), dynamic_slice_sizes={1,8}
      ROOT %u = f32[4,8]{1,0} dynamic-update-slice(%q, %row, %i, %zero)
    }

    %body (t: (s32[], f32[4,8], f32[4,8])) -> (s32[], f32[4,8], f32[4,8]) {
      %t = (s32[], f32[4,8]{1,0}, f32[4,8]{1,0}) parameter(0)
      %k = s32[] get-tuple-element(%t), index=0
      %x = f32[4,8]{1,0} get-tuple-element(%t), index=1
      %y = f32[4,8]{1,0} get-tuple-element(%t), index=2
      %f = f32[4,8]{1,0} fusion(%x, %y, %k), kind=kLoop, calls=%slice_and_update
      ROOT %r = (s32[], f32[4,8]{1,0}, f32[4,8]{1,0}) tuple(%k, %x, %f)
    }

    %limit (s: (s32[], f32[4,8], f32[4,8])) -> pred[] {
      %n = s32[] constant(4)
      %s = (s32[], f32[4,8]{1,0}, f32[4,8]{1,0}) parameter(0)
      %j = s32[] get-tuple-element(%s), index=0
      ROOT %lt = pred[] compare(%j, %n), direction=LT
    }

    ENTRY %main (a: (s32[], f32[4,8], f32[4,8])) -> (s32[], f32[4,8], f32[4,8]) {
      %a = (s32[], f32[4,8]{1,0}, f32[4,8]{1,0}) parameter(0)
      ROOT %w = (s32[], f32[4,8]{1,0}, f32[4,8]{1,0}) while(%a), \\
    condition=%limit, body=%body
    }
    """).replace("\\\n", "")


def test_loop_reads_and_writes_a_row_at_each_step():
    # The row is read and written, and the index is read.
    assert bytes_moved(LOOP) == 4 * (2 * 8 * 4 + 4)
    assert kernels_run(LOOP) == 4


def test_fusion_within_a_fusion_reads_and_writes_its_slices():
    outer = textwrap.dedent("""
        %outer (a: f32[4,8], b: f32[4,8], c: s32[]) -> f32[4,8] {
          %a = f32[4,8]{1,0} parameter(0)
          %b = f32[4,8]{1,0} parameter(1)
          %c = s32[] parameter(2)
          ROOT %g = f32[4,8]{1,0} fusion(%a, %b, %c), calls=%slice_and_update
        }

        %body (""")
    text = LOOP.replace("\n%body (", outer).replace(
        "kind=kLoop, calls=%slice_and_update\n  ROOT %r",
        "kind=kLoop, calls=%outer\n  ROOT %r",
    )
    assert text.count("calls=%outer") == 1
    assert (bytes_moved(text), kernels_run(text)) == (bytes_moved(LOOP), 4)


def test_asynchronous_fusion_counts_once():
    fusion = (
        "%f = f32[4,8]{1,0} fusion(%x, %y, %k), kind=kLoop, calls=%slice_and_update"
    )
    start = fusion.replace("%f =", "%s =").replace("fusion(", "fusion-start(")
    done = "%f = f32[4,8]{1,0} fusion-done(%s)\n  ROOT %r ="
    text = LOOP.replace(fusion, start).replace("ROOT %r =", done)
    assert text.count("fusion-") == 2
    assert (bytes_moved(text), kernels_run(text)) == (bytes_moved(LOOP), 4)


def test_copy_to_the_chip_and_back_counts_what_is_off_the_chip():
    text = textwrap.dedent("""
        ENTRY %main (x: f32[16]) -> f32[16] {
          %x = f32[16]{0} parameter(0)
          %s = (f32[16]{0:S(1)}, f32[16]{0}, u32[]) copy-start(%x)
          %d = f32[16]{0:S(1)} copy-done(%s)
          %y = f32[16]{0:S(1)} negate(%d)
          ROOT %z = f32[16]{0} copy(%y)
        }
        """)
    assert bytes_moved(text) == 2 * 16 * 4


def test_elementwise_function_reads_and_writes_each_array_once():
    x = jax.ShapeDtypeStruct((1000,), jnp.float32)
    text = jax.jit(lambda x, y: x * y + 1).lower(x, x).compile().as_text()
    assert text is not None
    assert bytes_moved(text) == 3 * 4000
