"""Tokens out of range have no embedding, neither as values nor in gradients."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from ssm_jax.models import TokenEncoder
from tests.tiers import tiered


@pytest.mark.parametrize("vocabulary", tiered([1, 7, 300]))
@pytest.mark.parametrize("dtype", tiered(["int32", "int8", "uint8"]))
def test_token_out_of_range_is_nan_and_never_another_row(vocabulary, dtype, key):
    encoder = TokenEncoder(d_model=3, vocabulary=vocabulary)
    variables = encoder.init(key, jnp.zeros(2, jnp.int32))
    limits = np.iinfo(dtype)
    tokens = np.array([0, vocabulary - 1, vocabulary, -1, -vocabulary, 10**6])
    tokens = tokens[(tokens >= limits.min) & (tokens <= limits.max)]
    inside = (tokens >= 0) & (tokens < vocabulary)

    def total(variables):
        embedded = encoder.apply(variables, jnp.asarray(tokens, dtype))
        return jnp.nansum(embedded), embedded

    run = jax.jit(jax.value_and_grad(total, has_aux=True))
    (_, embedded), gradient = run(variables)
    table = np.asarray(variables["params"]["table"]["embedding"])
    np.testing.assert_array_equal(embedded[inside], table[tokens[inside]])
    assert np.isnan(embedded[~inside]).all()
    counts = np.bincount(tokens[inside], minlength=vocabulary)
    found = gradient["params"]["table"]["embedding"]
    np.testing.assert_array_equal(found, np.repeat(counts[:, None], 3, 1))
