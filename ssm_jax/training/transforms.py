"""Optimizers of optax for the parameter groups of a model.

The constructor of an optimizer is called once for each group of parameters, with the
learning rate and the weight decay of the group. Some optimizers of optax would then not
train as their papers ask: `_CALLS` says how these are called, and `_REFUSED` which ones
the training loop cannot call.
"""

import dataclasses
import functools
from collections.abc import Callable, Hashable, Mapping
from typing import Annotated, Any

import jax
import jax.numpy as jnp
import optax
from optax import contrib

from ssm_jax.config import accepts, check_arguments
from ssm_jax.fields import PositiveFloat, check_value
from ssm_jax.recurrences.families.base import ParamGroup
from ssm_jax.training.groups import is_group
from ssm_jax.types import PyTree


@dataclasses.dataclass(frozen=True, kw_only=True)
class _Call:
    """How a constructor is called.

    Attributes:
      arguments: Its arguments unless the config gives others.
      for_warmup: As ``arguments``, if the schedule begins below the peak.
      whole: Whether it is called once for all parameters, because its step size or its
        noise depends on all of them.
      by_loss: Whether its step size is the loss by the norm of the gradient.
      divides_by_rate: Whether a learning rate of 0 makes its first step 0 / 0.
      averages: Whether ``b1`` is the weight of an average in the iterate.
      dimensions: Name of the argument that says which parameters are matrices.
      matrix: Value of that argument for a matrix. None: the default is right.
      other_rate: Name of the argument that is the learning rate of what is no matrix.
      other_decay: Likewise for the weight decay.
    """

    arguments: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    for_warmup: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    whole: bool = False
    by_loss: bool = False
    divides_by_rate: bool = False
    averages: bool = False
    dimensions: str = ""
    matrix: Any = None
    other_rate: str = ""
    other_decay: str = ""


_CALLS: dict[Any, _Call] = {
    # With the factor of Moonlight a matrix moves as far as by Adam, which trains the
    # other parameters, so that one learning rate fits both.
    contrib.muon: _Call(
        arguments={"consistent_rms": 0.2},
        dimensions="muon_weight_dimension_numbers",
        matrix=contrib.MuonDimensionNumbers(reduction_axis=-2, output_axis=-1),
        other_rate="adam_learning_rate",
        other_decay="adam_weight_decay",
    ),
    contrib.galore: _Call(dimensions="weight_dimension_numbers"),
    # From the distance to the initial parameters and the norm of the gradient.
    contrib.dog: _Call(whole=True),
    contrib.dowg: _Call(whole=True),
    contrib.dadapt_adamw: _Call(whole=True, divides_by_rate=True),
    # As its authors advise.
    contrib.prodigy: _Call(
        whole=True, divides_by_rate=True, for_warmup={"safeguard_warmup": True}
    ),
    contrib.momo: _Call(whole=True, by_loss=True),
    contrib.momo_adam: _Call(whole=True, by_loss=True),
    # Calls with one key would draw the same noise for arrays of the same shape.
    optax.noisy_sgd: _Call(whole=True, arguments={"key": 0}),
    contrib.schedule_free_adamw: _Call(averages=True),
    contrib.schedule_free_sgd: _Call(averages=True),
}

_NO_SCHEDULE = "whose learning rate follows no schedule"
_REFUSED: dict[Any, tuple[str, str]] = {
    optax.lbfgs: ("whose line search evaluates the loss again", "adamw"),
    contrib.sophia: ("which needs the Hessian of the loss", "adamw"),
    contrib.dpsgd: ("which needs the gradient of each example", "optax:noisy_sgd"),
    optax.rprop: (f"{_NO_SCHEDULE}, and which needs all data at each step", "sign_sgd"),
    optax.sm3: (_NO_SCHEDULE, "adagrad"),
    optax.optimistic_adam: (_NO_SCHEDULE, "optax:optimistic_adam_v2"),
    optax.polyak_sgd: (_NO_SCHEDULE, "optax.contrib:momo"),
    contrib.schedule_free: (
        "which wraps another optimizer",
        "optax.contrib:schedule_free_adamw or optax.contrib:schedule_free_sgd",
    ),
}
"""Why the training loop cannot call an optimizer, and what it can call."""


def call_function(
    field: str, name: str, function: functools.partial[Any], **values: Any
) -> Any:
    """Calls the function that a config names.

    Args:
      field: Field of the config, for errors.
      name: Name or address of the function, for errors.
      function: The function, with its arguments from the config.
      **values: Further arguments, which the config may not repeat.

    Raises:
      ValueError: The function has no such argument, lacks one, or refuses a value.
    """
    for argument in function.keywords.keys() & values.keys():
        raise ValueError(
            f"`{field}` must be given {argument} once, got it in the arguments of "
            f"{name} too; set the field of that name."
        )
    check_arguments(function.func, {**function.keywords, **values}, field)
    try:
        return function(**values)
    except (TypeError, ValueError) as error:
        raise ValueError(
            f"`{field}` must accept its arguments, got an error of {name}: {error}"
        ) from error


@dataclasses.dataclass(frozen=True, kw_only=True)
class Constructor:
    """The constructor of an optimizer, with what all groups have in common.

    Attributes:
      kind: Its name or address in the config.
      function: The constructor, with its arguments from the config.
      rate: Returns the schedule for a factor on the learning rate.
      learning_rate: The peak at a factor of 1.
      weight_decay: Weight decay of the groups that have one.
      clip_norm: Maximum norm of the gradient, which is clipped before. None: not.
      moments: Arguments from fields of `Optimizer`.

    Raises:
      ValueError: The training loop cannot call the constructor; the error names what it
        can call.
    """

    kind: str
    function: functools.partial[Any]
    rate: Callable[[float], optax.Schedule]
    learning_rate: float
    weight_decay: float = 0.0
    clip_norm: float | None = None
    moments: Mapping[str, Any] = dataclasses.field(default_factory=dict)

    def __post_init__(self):
        """Checks that the optimizer can be called."""
        function = self.function.func
        known = isinstance(function, Hashable) and function in _REFUSED
        why, instead = _REFUSED[function] if known else ("", "adamw")
        if not known and not accepts(function, "learning_rate"):
            why = "which has none"
        # Others of optax scale gradients, but take no step down.
        name = getattr(function, "__name__", "")
        if name.startswith("scale_by_") and function.__module__.startswith("optax."):
            why = "which is a part of one"
        if why:
            raise ValueError(
                "`kind` must be an optimizer with a learning rate, for gradients of "
                f"batches, got {self.kind}, {why}; use {instead}."
            )
        call, words = self._call, {**self.function.keywords, **self.moments}
        if call.averages:
            usual = "0.9 is usual: it is the weight of the average"
            check_value("b1", words.get("b1", 0.9), Annotated[PositiveFloat, usual])
        if call.by_loss and self.clip_norm is not None:
            raise ValueError(
                f"`clip_norm` must be None for {self.kind}, whose step size is the "
                f"loss by the norm of the gradient, got {self.clip_norm}; the learning "
                "rate bounds its steps."
            )

    @property
    def _call(self) -> _Call:
        function = self.function.func
        known = isinstance(function, Hashable) and function in _CALLS
        return _CALLS[function] if known else _Call()

    def transform(self, groups: PyTree) -> optax.GradientTransformation:
        """Returns the gradient transformation of a model.

        Args:
          groups: A `ParamGroup` for each parameter, with its kind.

        Returns:
          The transformation; its update takes the loss as an extra argument, ``value``.

        Raises:
          ValueError: The constructor refuses an argument or has no weight decay.
        """
        return self._whole(groups) if self._call.whole else self._by_group(groups)

    def _by_group(self, groups):
        call = self._call

        def key(group):
            return group, group.kind == "matrix" and bool(call.dimensions)

        # In a fixed order: the labels are keys of the optimizer state, so a checkpoint
        # must have the same ones.
        every = sorted(
            {key(group) for group in _leaves(groups)},
            key=lambda key: (
                str(key[0].weight_decay),
                str(key[0].lr_multiplier),
                key[1],
            ),
        )
        labels = _map(lambda group: every.index(key(group)), groups)
        transforms = {}
        for label, (group, is_matrix) in enumerate(every):
            more = {}
            if call.dimensions and not (is_matrix and call.matrix is None):
                value = call.matrix if is_matrix else None
                more[call.dimensions] = functools.partial(_filled, value)
            transforms[label] = self._construct(group, **more)
        return optax.partition(transforms, labels)

    def _whole(self, groups):
        trained = [group for group in _leaves(groups) if group.lr_multiplier]
        decays = {group.weight_decay for group in trained}
        more = {}
        if self.weight_decay and len(decays) > 1:
            if not accepts(self.function.func, "mask"):
                raise ValueError(
                    f"`weight_decay` must be 0 for {self.kind}, which decays all "
                    f"parameters or none, got {self.weight_decay} for a model whose "
                    "recurrences have parameters without weight decay; adamw and "
                    "optax.contrib:dog tell them apart."
                )
            decayed = _map(lambda group: group.weight_decay, groups)
            more["mask"] = functools.partial(_like, decayed)
        group = ParamGroup(weight_decay=True in decays)
        labels = _map(lambda group: int(group.lr_multiplier > 0), groups)
        return optax.chain(
            optax.partition(
                {0: optax.set_to_zero(), 1: self._construct(group, **more)}, labels
            ),
            optax.stateless(
                lambda updates, _: jax.tree.map(
                    lambda update, group: group.lr_multiplier * update, updates, groups
                )
            ),
        )

    def _construct(self, group, **more):
        """Calls the constructor for a group, with ``more`` arguments."""
        if not group.lr_multiplier and ":" in self.kind:
            # Of some a learning rate of 0 leaves rounding or a small step.
            return optax.set_to_zero()
        call, rate = self._call, self.rate(group.lr_multiplier)
        arguments = {**call.arguments, **self.function.keywords}
        if call.for_warmup and self._warms_up():
            arguments = {**call.for_warmup, **arguments}
        values = {**self.moments, **more, "learning_rate": rate}
        if call.divides_by_rate:
            floor = 1e-6 * group.lr_multiplier * self.learning_rate
            values["learning_rate"] = lambda step: jnp.maximum(rate(step), floor)
        if (other := arguments.pop(call.other_rate, None)) is not None:
            check_value(call.other_rate, other, PositiveFloat)
            factor = other / self.learning_rate
            values[call.other_rate] = self.rate(factor * group.lr_multiplier)
        decay = self.weight_decay if group.weight_decay else 0.0
        function = functools.partial(self.function.func, **arguments)
        if self.kind == "sgd":
            # Without a weight decay of its own.
            sgd = call_function("kind", self.kind, function, **values)
            return optax.chain(optax.add_decayed_weights(decay), sgd)
        # A decay of 0 instead of another constructor, so that the states of all groups
        # have one structure.
        if accepts(self.function.func, "weight_decay"):
            values |= {
                name: decay for name in ("weight_decay", call.other_decay) if name
            }
        elif self.weight_decay:
            raise ValueError(
                f"`weight_decay` must be 0 for {self.kind}, which has none, got "
                f"{self.weight_decay}; adamw has one."
            )
        return call_function("kind", self.kind, function, **values)

    def _warms_up(self):
        # Also where the state of a run is only traced, for its shapes.
        with jax.ensure_compile_time_eval():
            return bool(jnp.less(self.rate(1.0)(0), 0.999 * self.learning_rate))


def averaged_params(opt_state: PyTree, params: PyTree) -> PyTree:
    """Returns the average of the iterates that an optimizer computes, to evaluate it.

    Args:
      opt_state: State of the optimizer.
      params: The parameters, at which gradients are computed.

    Returns:
      The averages of the parameters that a schedule-free optimizer trains, which it
      returns interpolated with its own iterates; the others as they are.
    """
    for state in jax.tree.leaves(opt_state, is_leaf=_averages):
        if _averages(state):
            params = _averaged(state.b1, state.z, params)
    return params


def is_averaged(opt_state: PyTree) -> bool:
    """Whether an optimizer averages the iterates; see `averaged_params`."""
    return any(map(_averages, jax.tree.leaves(opt_state, is_leaf=_averages)))


def _averages(state):
    return isinstance(state, contrib.ScheduleFreeState)


@jax.jit
def _averaged(b1, z, params):
    # The iterates of the parameters of other groups are masked.
    return jax.tree.map(
        lambda z, y: y if _is_masked(z) else ((y - (1 - b1) * z) / b1).astype(y.dtype),
        z,
        params,
        is_leaf=_is_masked,
    )


def _is_masked(leaf):
    return isinstance(leaf, optax.MaskedNode)


def _leaves(groups):
    return jax.tree.leaves(groups, is_leaf=is_group)


def _map(function, groups):
    return jax.tree.map(function, groups, is_leaf=is_group)


def _like(tree, params):
    """The leaves of a tree where a group has the parameter, as optax masks the rest."""
    return jax.tree.map(lambda x, p: p if _is_masked(p) else x, tree, params)


def _filled(value, params):
    """The same value for each parameter of a group."""
    return jax.tree.map(lambda _: value, params)
