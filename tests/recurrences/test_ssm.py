"""State space models: initialization, and properties stated in the papers."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

from ssm_jax.recurrences import DSS, S4, S4D, S5, ParamGroup, convolution_kernel
from ssm_jax.recurrences.families import hippo
from tests.bad_inputs import refuses
from tests.tiers import tiered

WIDTH = 16
HALVES = np.imag(hippo.legs(4).lam)
FREQUENCIES = {
    "dss_lin": (DSS(d_state=3, eigenvalue_init="lin"), [0, np.pi, 2 * np.pi]),
    "s4d_lin": (S4D(d_state=4, eigenvalue_init="lin"), [0, np.pi]),
    "s4d_inv": (S4D(d_state=4, eigenvalue_init="inv"), [12 / np.pi, 4 / 3 / np.pi]),
    "dss_hippo": (DSS(d_state=4), np.imag(hippo.legs(8).lam)),
    "s4d_legs": (S4D(d_state=8, eigenvalue_init="legs"), np.imag(hippo.legs(8).lam)),
    "s4": (S4(d_state=8), np.imag(hippo.legs(8).lam)),
    "s5": (S5(d_state=8, blocks=2, real_part="exp"), [*HALVES, *HALVES]),
    "s5_all": (
        S5(d_state=8, blocks=2, conjugate_pairs=False, real_part="exp"),
        [*HALVES, *-HALVES, *HALVES, *-HALVES],
    ),
}


def follows(sample, distribution):
    """Whether a sample follows a distribution, by the Kolmogorov-Smirnov test."""
    return stats.kstest(np.ravel(sample), distribution).pvalue > 0.01


@pytest.mark.parametrize(
    ("ssm", "wanted"),
    tiered(FREQUENCIES, ["s4d_lin", "s4d_legs", "s4d_inv", "s4"], unpack=True),
)
def test_eigenvalues_start_where_the_papers_say(ssm, wanted, key):
    params = ssm.init(key, WIDTH)
    wanted = np.broadcast_to(np.float32(wanted), params["frequency"].shape)
    np.testing.assert_allclose(params["frequency"], wanted, rtol=1e-6)
    np.testing.assert_allclose(np.exp(params["log_rate"]), 0.5, rtol=1e-6)


@pytest.mark.full
@pytest.mark.parametrize(
    "ssm",
    [DSS(), S4D(), S4(), S5(d_state=2000, blocks=500)],
    ids=["dss", "s4d", "s4", "s5"],
)
def test_steps_are_log_uniform(ssm, key):
    """One step per channel, or per state in S5."""
    log_dt = ssm.init(key, 1000)["log_dt"]
    assert log_dt.shape == (1000,)
    low, high = np.log([1e-3, 1e-1])
    assert follows(log_dt, stats.uniform(low, high - low).cdf)


def test_weights_start_normal(key):
    dss = DSS(bidirectional=True).init(key, WIDTH)
    for name in ("w_re", "w_im", "w_backward_re", "w_backward_im", "feedthrough"):
        assert follows(dss[name], "norm"), name
    s4d, s4 = (ssm(bidirectional=True).init(key, WIDTH) for ssm in (S4D, S4))
    for name in ("C_re", "C_im", "C_backward_re", "C_backward_im"):
        assert follows(np.sqrt(2) * s4d[name], "norm"), name
        assert follows(np.sqrt(2) * s4[name], "norm"), name
    np.testing.assert_array_equal(s4d["B_re"], 1)
    np.testing.assert_array_equal(s4d["B_im"], 0)


def test_dss_has_the_published_number_of_parameters(key):
    dss = DSS(d_state=4096, eigenvalue_init="lin")
    params = jax.eval_shape(lambda: dss.init(key, 128))
    # Of 1,074,179 the encoder, the output, the norm and the decoder have the others.
    others = (3 + 1) * 128 + (128 + 1) * 128 + 2 + (128 + 1)
    assert sum(leaf.size for leaf in params.values()) == 1_074_179 - others


@pytest.mark.parametrize("ssm", [DSS, S4, S4D, S5])
def test_all_but_output_and_feedthrough_keep_their_learning_rate(ssm, key):
    ssm = ssm(lr_multiplier=0.5, bidirectional=True)
    names = ssm.init(key, WIDTH).keys() - {"feedthrough"}
    names -= {name for name in names if name.startswith("C_")}
    group = ParamGroup(weight_decay=False, lr_multiplier=0.5)
    assert ssm.groups() == dict.fromkeys(names, group)


@pytest.mark.parametrize("dt", [1e-5, 1e-3, 0.3])
def test_softmax_kernel_is_the_row_softmax_of_the_paper(dt, key):
    """``K = Re(w Lambda^-1 row-softmax(P))``, ``P_nk = lambda_n k dt``."""
    length = 1024
    dss = DSS(d_state=8, kernel="softmax", length=length, dt_min=dt, dt_max=dt)
    params = dss.init(key, WIDTH)
    p = {name: np.float64(value) for name, value in params.items()}
    lam = -np.exp(p["log_rate"]) + 1j * p["frequency"]
    P = np.exp(lam[:, None] * np.exp(p["log_dt"][0]) * np.arange(length))
    rows = P / np.sum(P, -1, keepdims=True)
    wanted = np.real((p["w_re"] + 1j * p["w_im"]) / lam @ rows)
    given = jax.jit(lambda params: convolution_kernel(dss.modes(params), length))(
        params
    )
    # The lower bound of the denominator matters if all modes outlast the sequence.
    tolerance = (1e-2 if dt * length < 0.1 else 2e-5) * np.abs(wanted).max()
    np.testing.assert_allclose(given, wanted, rtol=0, atol=tolerance)


@pytest.mark.full
@pytest.mark.parametrize("frequency", tiered([0.0, 1e-6, 1.0]))
def test_softmax_is_finite_and_learns_where_it_divides_by_least(frequency, key):
    dss = DSS(d_state=1, kernel="softmax", length=2, dt_min=1e-4, dt_max=1e-4)
    params = dict(dss.init(key, 1), frequency=jnp.array([frequency]))
    params["log_rate"] = jnp.array([-30.0])

    def total(params):
        return jnp.sum(dss.apply(params, jnp.ones((2, 1)))[0])

    value, grads = jax.jit(jax.value_and_grad(total))(params)
    assert np.isfinite(value)
    assert all(np.all(np.isfinite(leaf)) for leaf in jax.tree.leaves(grads))


STEPS = "(0, dt_max]"
REFUSALS = {
    "dss_size": (DSS, {"d_state": 0}, "d_state", "positive", 0),
    "dss_dt": (DSS, {"dt_min": 0.2}, "dt_min", STEPS, 0.2),
    "dss_length": (DSS, {"kernel": "softmax"}, "length", "softmax", None),
    "dss_unread_length": (DSS, {"length": 8}, "length", "None", 8),
    "s4_size": (S4, {"d_state": 0}, "d_state", "even", 0),
    "s4_dt": (S4, {"dt_min": 0.2}, "dt_min", STEPS, 0.2),
    "s4d_size": (S4D, {"d_state": 3}, "d_state", "even", 3),
    "s4d_dt": (S4D, {"dt_min": 0.0}, "dt_min", STEPS, 0.0),
    "s5_size": (S5, {"d_state": 12}, "d_state", "multiple", 12),
    "s5_blocks": (S5, {"blocks": 0}, "blocks", "1", 0),
    "s5_dt": (S5, {"dt_min": 0.2}, "dt_min", STEPS, 0.2),
}


@pytest.mark.parametrize(
    ("ssm", "options", "name", "rule", "value"), REFUSALS.values(), ids=REFUSALS
)
def test_numbers_out_of_range_are_refused(ssm, options, name, rule, value):
    with refuses(name, value, rule=rule):
        ssm(**options)
