"""Variants of experiments: names and values, their order, defaults and errors."""

import dataclasses
from typing import Literal

import pytest

from ssm_jax.fields import PositiveInt
from ssm_jax.variants import format_variant, parse_variant


@dataclasses.dataclass(frozen=True)
class Variant:
    model: Literal["fru", "sru"]
    n: Literal[5, 1] = 5
    length: PositiveInt = 16
    rows: PositiveInt | None = None
    rate: float = 0.25
    permuted: bool = False
    size: Literal["full", "small"] = "full"


@dataclasses.dataclass(frozen=True)
class Nothing:
    pass


@pytest.mark.parametrize(
    ("text", "chosen"),
    [
        ("model=fru", Variant("fru")),
        ("size=small,model=sru", Variant("sru", size="small")),
        ("model=fru,n=1", Variant("fru", n=1)),
        ("model=fru,length=4,rows=32", Variant("fru", length=4, rows=32)),
        ("model=fru,rate=1", Variant("fru", rate=1.0)),
        ("model=fru,permuted=true", Variant("fru", permuted=True)),
    ],
)
def test_pairs_are_fields(text, chosen):
    assert parse_variant(text, Variant) == chosen
    again = format_variant(chosen)
    assert parse_variant(again, Variant) == chosen


def test_one_variant_has_one_text():
    for text in ("model=fru,size=small,n=5", "size=small,model=fru,permuted=false"):
        chosen = parse_variant(text, Variant)
        assert format_variant(chosen) == "model=fru,size=small"
    assert format_variant(parse_variant("", Nothing)) == ""


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        (
            "small",
            "name=value pairs joined by commas, got 'small'; choices: model=fru|sru",
        ),
        ("model", "got 'model'"),
        ("model=", "got 'model='"),
        ("=fru", "got '=fru'"),
        ("model=fru,", "got ''"),
        ("modle=fru", "got 'modle'; did you mean `model`?"),
        ("model=fru,model=sru", "each name once, got 'model'"),
        ("n=1", "a value for 'model', got 'n=1'"),
        ("", "a value for 'model', got ''"),
        ("model=fruu", "`variant: model` must be one of 'fru', 'sru', got 'fruu'; did"),
        ("model=fru,n=2", "`variant: n` must be one of 5, 1, got 2"),
        ("model=fru,length=0", "`variant: length` must be an integer of at least 1"),
        ("model=fru,length=1.5", "got '1.5'"),
        ("model=fru,length=²", "got '²'"),
        ("model=fru,rows=x", "`variant: rows` must be an integer"),
        ("model=fru,rate=nan", "`variant: rate` must be a finite number, got nan"),
        ("model=fru,permuted=1", "`variant: permuted` must be True or False, got '1'"),
    ],
)
def test_mistake_names_rule_value_and_way_out(text, shown):
    with pytest.raises(ValueError) as refusal:
        parse_variant(text, Variant)
    message = str(refusal.value)
    assert message.startswith("`variant") and shown in message
    assert "\n" not in message and len(message.split("; ")) == 2


def test_experiment_without_choices_takes_none():
    with pytest.raises(ValueError, match="got 'size'; it has none"):
        parse_variant("size=small", Nothing)
