"""Configs: complete specs, equal objects, and errors."""

import dataclasses
import functools
import math
import sys
import types
from collections.abc import Callable, Sequence
from typing import Any, Literal, Protocol

import flax.linen as nn
import optax
import pytest
from ml_collections import ConfigDict, config_dict

from ssm_jax.config import (
    Config,
    build,
    check_packages,
    differences,
    flatten,
    from_json,
    nearest,
    spec,
    to_json,
    unknown_classes,
)
from ssm_jax.config.spec import MOVED
from tests.bad_inputs import refuses


class Recurrence(Protocol):
    @property
    def d_out(self) -> int: ...


@dataclasses.dataclass(frozen=True)
class Decay:
    d_state: int = 4
    dt_min: float = 0.001
    readout: Literal["real", "prod"] = "real"
    d_out = 1

    def __post_init__(self):
        if self.d_state < 1:
            raise ValueError(f"`d_state` must be positive, got {self.d_state}.")


@dataclasses.dataclass(frozen=True)
class Gate:
    width: int | None = None
    d_out = 1


@dataclasses.dataclass(frozen=True)
class Stack:
    name: str
    parent: str = "a field like any other, outside Flax"
    recurrence: Recurrence = Decay()
    widths: tuple[int, ...] = (8, 8)
    betas: tuple[float, float] = (0.9, 0.99)
    blocks: Sequence[Recurrence] = ()
    d_state: int | None = None
    scale: float | None = None
    limit: float | int = 1
    norm: Literal["layer", "rms"] | None = None
    causal: bool = True
    decay: Decay | None = None
    tags: tuple[str, ...] = dataclasses.field(default_factory=lambda: ("x",))
    anything: Any = None
    cache: dict | None = dataclasses.field(default=None, init=False)


@dataclasses.dataclass(frozen=True)
class Odd:
    activation: Callable = math.tanh


class Called:
    def __call__(self, x):
        return x


class Layer(nn.Module):
    d_model: int
    recurrence: Recurrence = Decay()

    def __call__(self, x):
        return x


class NotData:
    pass


def group(fields: dict[str, Any]) -> Config:
    return ConfigDict(fields)


@pytest.fixture(autouse=True)
def example_module(monkeypatch):
    """Makes the classes above members of a module of ssm_jax, which specs require."""
    module = types.ModuleType("ssm_jax._example")
    for cls in (Decay, Gate, Stack, Odd, Layer, NotData):
        monkeypatch.setattr(cls, "__module__", module.__name__)
        setattr(module, cls.__name__, cls)
    vars(module).update(ConfigDict=ConfigDict, tanh=math.tanh)
    monkeypatch.setitem(sys.modules, module.__name__, module)


def test_spec_holds_the_class_and_every_field():
    assert spec(Decay, d_state=2).to_dict() == {
        "cls": "ssm_jax._example:Decay",
        "d_state": 2,
        "dt_min": 0.001,
        "readout": "real",
    }


def test_function_is_built_with_the_arguments_that_are_given():
    """As one that is public, and as itself where it has none."""
    config = spec(Odd, activation=functools.partial(optax.adamw, b1=0.5))
    config.activation.b1 = 0.75
    stored = from_json(to_json(config))
    assert stored.activation.to_dict() == {"cls": "optax:adamw", "b1": 0.75}
    built = build(stored).activation
    assert (built.func, built.keywords) == (optax.adamw, {"b1": 0.75})
    assert build(spec(Odd)).activation is math.tanh
    assert spec(Odd, activation=nn.gelu).activation.cls == "jax.nn:gelu"
    assert differences(config, stored) == []
    check_packages(stored)


def test_object_with_defaults_equals_that_of_the_constructor():
    assert build(spec(Stack, name="a")) == Stack(name="a")


def test_every_given_value_reaches_the_object():
    given = Stack(
        name="a",
        parent="b",
        recurrence=Gate(width=3),
        widths=(1, 2, 3),
        betas=(0.5, 0.1),
        blocks=(Decay(d_state=1), Gate()),
        d_state=7,
        scale=0.1,
        limit=2.5,
        norm="rms",
        causal=False,
        decay=Decay(dt_min=1e-30),
        tags=(),
        anything=(1, "x", None),
    )
    fields = {f.name: getattr(given, f.name) for f in dataclasses.fields(given)}
    del fields["cache"]  # not an argument of the constructor
    assert build(spec(Stack, **fields)) == given


def test_json_round_trip_keeps_text_and_object():
    experiment = group({"seed": 0, "note": None, "rate": 0.1 + 0.2, "inf": math.inf})
    experiment.model = spec(
        Stack, name="é", widths=(1,), blocks=[Decay(), Gate()], scale=1e-300
    )
    again = from_json(to_json(experiment))
    assert to_json(again) == to_json(experiment)
    assert build(again.model) == build(experiment.model)
    assert again.model.widths == (1,)
    assert again.note is None
    assert again.rate == 0.1 + 0.2
    assert differences(experiment, again) == []


def test_json_does_not_depend_on_the_order_of_fields():
    assert to_json(ConfigDict({"a": 1, "b": 2})) == to_json(
        ConfigDict({"b": 2, "a": 1})
    )


def test_spec_of_a_flax_module_omits_parent_and_name():
    config = spec(Layer, d_model=3)
    assert set(config) == {"cls", "d_model", "recurrence"}
    layer = build(config)
    assert (layer.d_model, layer.recurrence) == (3, Decay())


def test_spec_of_a_nested_flax_module():
    inner = spec(Stack, name="a", recurrence=Layer(d_model=2)).recurrence
    assert inner.cls == "ssm_jax._example:Layer"
    assert inner.d_model == 2


def test_reference_follows_an_override():
    task = spec(Decay, d_state=4)
    experiment = group(
        {
            "task": task,
            "model": spec(
                Stack,
                name="a",
                d_state=task.get_ref("d_state"),
                widths=(task.get_ref("d_state") * 2, 1),
            ),
        }
    )
    experiment.task.d_state = 5
    model = build(experiment.model)
    assert (model.d_state, model.widths) == (5, (10, 1))
    assert from_json(to_json(experiment)).model.widths == (10, 1)
    assert flatten(experiment)["model.widths[0]"] == 10


SETS = {
    "follower": ({"model": 7}, (4, 7)),
    "source, then follower": ({"task": 5, "model": 7}, (5, 7)),
    "follower, then source": ({"model": 7, "task": 5}, (5, 7)),
    "follower to None, then source": ({"model": None, "task": 5}, (5, None)),
}


@pytest.mark.parametrize(("values", "wanted"), SETS.values(), ids=SETS.keys())
def test_reference_is_followed_until_the_field_is_set(values, wanted):
    task = spec(Decay, d_state=4)
    model = spec(Stack, name="a", d_state=task.get_ref("d_state"))
    other = spec(Stack, name="b", d_state=model.get_ref("d_state"))
    experiment = group({"task": task, "model": model, "other": other})
    for name, value in values.items():
        experiment[name].d_state = value
    assert (task.d_state, model.d_state) == wanted
    assert other.d_state == wanted[1]
    other.d_state = 9
    assert (task.d_state, model.d_state, other.d_state) == (*wanted, 9)


@pytest.mark.parametrize(
    "field, value, wanted",
    [
        ("d_state", 5, 5),
        ("scale", 2, 2.0),
        ("limit", 2.5, 2.5),
        ("limit", 3, 3),
        ("norm", "rms", "rms"),
        ("betas", (0, 1), (0.0, 1.0)),
        ("widths", [1, 2, 3], (1, 2, 3)),
        ("anything", 1.5, 1.5),
        ("decay", config_dict.ConfigDict({"cls": "ssm_jax._example:Decay"}), Decay()),
    ],
)
def test_override_is_converted_as_annotated(field, value, wanted):
    config = spec(Stack, name="a").lock()
    config[field] = value
    got = getattr(build(config), field)
    assert got == wanted
    assert type(got) is type(wanted)


def test_integer_given_for_a_float_field_can_be_overridden_by_a_float():
    config = spec(Decay, dt_min=1)
    assert config.get_type("dt_min") is float


def test_runtime_field_replaces_that_of_the_config():
    assert build(spec(Stack, name="a"), anything=math.tanh).anything is math.tanh
    with refuses("Stack.anythin`", rule="`anything`"):
        build(spec(Stack, name="a"), anythin=1)


REFUSED_SPECS = {
    "unknown field": (lambda: spec(Decay, d_stat=1), "Decay.d_stat", "`d_state`", ""),
    "missing field": (lambda: spec(Stack), "Stack.name", "str", ""),
    "wrong type": (lambda: spec(Decay, d_state="4"), "Decay.d_state", "int", "'4'"),
    "bool for a number": (
        lambda: spec(Decay, d_state=True),
        "Decay.d_state",
        "int",
        True,
    ),
    "fraction for an int": (
        lambda: spec(Stack, name="a", d_state=2.5),
        "Stack.d_state",
        "an integer or None",
        2.5,
    ),
    "wrong length": (
        lambda: spec(Stack, name="a", betas=(0.1,)),
        "Stack.betas",
        "a tuple of 2",
        (0.1,),
    ),
    "wrong item": (
        lambda: spec(Stack, name="a", widths=(1, "2")),
        "Stack.widths[1]",
        "an integer",
        "'2'",
    ),
    "unknown choice": (
        lambda: spec(Decay, readout="rael"),
        "Decay.readout",
        "`real`",
        "'rael'",
    ),
    "unlike any choice": (
        lambda: spec(Stack, name="a", norm="zzz"),
        "Stack.norm",
        "layer, rms",
        "'zzz'",
    ),
    "number for an object": (
        lambda: spec(Stack, name="a", recurrence=3),
        "Stack.recurrence",
        "a Recurrence",
        3,
    ),
    "function without an address": (
        lambda: spec(Odd, activation=lambda x: x),
        "<lambda>",
        "top level",
        "<lambda>",
    ),
    "object that is called": (
        lambda: spec(Odd, activation=Called()),
        "Called",
        "top level",
        "Called",
    ),
    "class in a tuple": (
        lambda: spec(Stack, name="a", anything=(1, Decay)),
        "Stack.anything[1]",
        "specs",
        "type",
    ),
    "argument of no function": (
        lambda: spec(optax.adamw, b3=0.9),
        "adamw.b3",
        "argument",
        "",
    ),
    "arguments by position": (
        lambda: spec(functools.partial(optax.adamw, 0.1)),
        "spec",
        "by name",
        (0.1,),
    ),
    "class from elsewhere": (
        lambda: spec(types.SimpleNamespace),
        "SimpleNamespace",
        "dataclass",
        "'types:SimpleNamespace'",
    ),
    "class without fields": (
        lambda: spec(NotData),
        "NotData",
        "dataclass",
        "'ssm_jax._example:NotData'",
    ),
}


@pytest.mark.parametrize(
    "write, name, rule, value", REFUSED_SPECS.values(), ids=REFUSED_SPECS.keys()
)
def test_spec_raises_in_one_line(write, name, rule, value):
    with refuses(name, value, rule=rule):
        write()


UNKNOWN_CLASSES = {
    "not a spec": ConfigDict({"d_state": 1}),
    "module of another": from_json('{"cls": "os:path"}'),
    "package that only begins like ours": from_json(
        '{"cls": "ssm_jax_evil.module:Name"}'
    ),
    "other package through ours": from_json('{"cls": "ssm_jax._example:ConfigDict"}'),
    "dotted name": from_json('{"cls": "ssm_jax._example:Decay.__init__"}'),
    "no such module": from_json('{"cls": "ssm_jax.nowhere:Decay"}'),
    "function of another package": from_json('{"cls": "ssm_jax._example:tanh"}'),
    "no such class": from_json('{"cls": "ssm_jax._example:Nothing"}'),
    "class of another module": from_json('{"cls": "ssm_jax.config.spec:ConfigDict"}'),
}
REFUSED_BUILDS = {
    "unknown field": (
        from_json('{"cls": "ssm_jax._example:Decay", "d_sate": 1}'),
        "config.model.d_sate",
        "`d_state`",
        "",
    ),
    "missing field": (
        from_json('{"cls": "ssm_jax._example:Stack"}'),
        "config.model.name",
        "must",
        "",
    ),
} | {
    key: (config, "config.model.cls", "dataclass", repr(config.get("cls")))
    for key, config in UNKNOWN_CLASSES.items()
}


@pytest.mark.parametrize(
    "config, name, rule, value", REFUSED_BUILDS.values(), ids=REFUSED_BUILDS.keys()
)
def test_build_raises_in_one_line(config, name, rule, value):
    with refuses(name, value, rule=rule):
        build(config, "config.model")


@pytest.mark.parametrize(
    "path, value, rule",
    [
        ("recurrence.d_state", "x", "int"),
        ("recurrence.readout", "x", "one of"),
        ("d_state", 2.5, "an integer or None"),
        ("causal", 1, "True or False"),
    ],
)
def test_error_of_an_override_names_its_whole_path(path, value, rule):
    with refuses(f"config.model.{path}`", repr(value), rule=rule):
        build(overridden(path, value), "config.model")


def test_error_of_an_object_says_its_path_and_its_field():
    with refuses("config.model.recurrence`: `d_state", 0, rule="positive"):
        build(overridden("recurrence.d_state", 0), "config.model")


def overridden(path, value):
    config = spec(Stack, name="a")
    *parents, last = path.split(".")
    holder = config
    for parent in parents:
        holder = holder[parent]
    with holder.ignore_type():
        holder[last] = value
    return config


def test_error_in_a_tuple_names_the_position():
    config = spec(Stack, name="a", blocks=(Decay(), Decay()))
    config.blocks[1].d_state = -1
    with refuses("config.model.blocks[1]`: `d_state", -1):
        build(config, "config.model")


def test_object_of_another_class_than_the_annotated_dataclass_is_rejected():
    with refuses("Stack.decay", "Gate", rule="Decay"):
        build(spec(Stack, name="a", decay=Gate()))


def test_differences_list_path_and_both_values():
    old = group({"model": spec(Stack, name="a", blocks=(Decay(),)), "steps": 1})
    new = group({"model": spec(Stack, name="b", blocks=(Decay(),)), "steps": 1.0})
    new.model.blocks[0].d_state = 9
    assert differences(old, new) == [
        "model.blocks[0].d_state: 4 -> 9",
        "model.name: 'a' -> 'b'",
        "steps: 1 -> 1.0",
    ]


def test_specs_in_tuples_of_tuples_have_paths():
    old, new = (
        ConfigDict({"pairs": ((spec(Decay, d_state=n), 1), (2, 3))}) for n in (4, 5)
    )
    assert differences(old, new) == ["pairs[0][0].d_state: 4 -> 5"]


def test_nan_does_not_differ_from_itself():
    config = ConfigDict({"rate": math.nan})
    assert differences(config, from_json(to_json(config))) == []


@pytest.mark.parametrize(
    "text", ["", "{", "[1]", "null", '{"__class__": 1}', '{"a.b": 1}']
)
def test_text_that_is_not_a_config_is_rejected(text):
    with refuses("text"):
        from_json(text)


def test_value_that_json_cannot_represent_is_rejected():
    with refuses("config", rule="numbers"):
        to_json(ConfigDict({"f": math.tanh}))


def test_nearest_lists_names_if_none_is_similar():
    assert nearest("zzz", ["ab", "cd"]) == "known: ab, cd."


def test_missing_field_has_its_default():
    """As in a config written before the class had the field."""
    from ssm_jax.recurrences import DLR
    from ssm_jax.tasks import Digits

    new = ConfigDict({"task": spec(Digits), "blocks": (spec(DLR),)})
    old = from_json(to_json(new))
    del old.blocks[0]["d_state"]
    assert differences(old, new) == []
    new.blocks[0].d_state = 7
    (line,) = differences(old, new)
    assert line.startswith("blocks[0].d_state: ") and line.endswith(" -> 7")


def test_class_that_moved_is_found_in_configs_of_earlier_versions():
    for old, new in MOVED.items():
        config = from_json(f'{{"blocks": [{{"cls": "{old}"}}], "cls": "{old}"}}')
        assert config.cls == config.blocks[0].cls == new
        assert unknown_classes(config) == []


def test_file_names_classes_of_named_packages_only():
    config = from_json('{"task": {"cls": "mine.tasks:Waves"}, "blocks": []}')
    with refuses("task.cls", "'mine.tasks:Waves'", rule="--packages=mine"):
        check_packages(config)
    check_packages(config, ["mine"])
    with refuses("packages", "'mine'", rule="several"):
        check_packages(config, "mine")


PLACES = {
    "field": '{"task": {"cls": "payload:F"}}',
    "field of a field": '{"m": {"cls": "ssm_jax.a:B", "a": {"cls": "payload:F"}}}',
    "tuple": '{"model": {"blocks": [1, {"cls": "payload:F"}]}}',
    "tuple in a tuple": '{"model": {"blocks": [[1, [2, {"cls": "payload:F"}]]]}}',
    "field in a tuple": '{"model": {"blocks": [[{"a": {"cls": "payload:F"}}]]}}',
    "address of an address": '{"task": {"cls": {"cls": "payload:F"}}}',
    "addresses": '{"task": {"cls": ["payload:F"]}}',
    "path of another": (
        '{"a": {"b": [{"cls": "payload:F"}], "b[0]": {"cls": "ssm_jax.a:B"}}}'
    ),
    "another address": '{"task": {"cls": "payload"}}',
    "longer name": '{"task": {"cls": "ssm_jax_payload:F"}}',
}


@pytest.mark.parametrize("text", PLACES.values(), ids=PLACES)
def test_class_of_a_file_is_checked_wherever_it_is(text):
    with refuses("", "payload", rule="--packages"):
        check_packages(from_json(text))


def test_comparison_imports_no_other_package():
    old = from_json('{"cls": "antigravity:Field", "d_state": 1}')
    assert differences(old, from_json(to_json(old))) == []
    assert "antigravity" not in sys.modules
