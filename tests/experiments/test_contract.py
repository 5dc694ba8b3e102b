"""Every experiment: it is what its file says, it builds, and its step can be taken."""

import copy
import functools
import math
from typing import get_args

import chex
import jax
import pytest
from ml_collections import ConfigDict

from experiments.dlr import (
    arena,
    atomic,
    digits,
    listops_subtrees,
    long_shift,
    pathfinder_segmentation,
    pg19,
    pixel_mnist,
    speech,
)
from experiments.etsmlp import (
    image,
    language,
    listops,
    pathfinder,
    pathx,
    retrieval,
    settings,
    shift,
    text,
)
from experiments.fru import frequencies, imdb, mixture, pixel_mnist as fru_pixel_mnist
from experiments.longssm import text as longssm_text
from experiments.own_data import beijing
from experiments.synthetic import recall, state_tracking
from ssm_jax.cli.errors import one_line_errors
from ssm_jax.config import build, differences, flatten, from_json, to_json
from ssm_jax.evaluation import evaluate_run
from ssm_jax.training import train
from ssm_jax.training.state import create
from ssm_jax.training.step import train_step
from tests.compilation import compilations
from tests.tiers import tiered

ARENA = ("", "model=gate", "size=small", "model=gate,size=small")
BASELINES = tuple(f"model={name},size=small" for name in settings.baselines.NAMES)
CHANGES = (
    *(f"ablation={name},size=small" for name in settings.ABLATIONS),
    *(f"init={name},size=small" for name in settings.INITS),
)
UNITS = ("fru", "sru", "lstm", "rnn")
MODELS = get_args(longssm_text.Variant.__annotations__["model"])
VARIANTS = {
    shift: (
        "length=16",
        *(f"length=64,ablation={name}" for name in settings.ABLATIONS),
        "length=256,model=gate",
    ),
    imdb: (
        "model=fru",
        "model=fru,n_frequencies=1,size=small",
        *(f"model={name}" for name in UNITS[1:]),
    ),
    fru_pixel_mnist: (
        "inputs=pixels,model=fru40",
        "inputs=pixels,model=fru40,size=small",
        *(
            f"inputs={inputs},model={unit}{size}"
            for size, inputs in (
                (",size=quarter", "permuted"),
                (",size=small", "pixels"),
                ("", "rows"),
            )
            for unit in UNITS
        ),
    ),
    frequencies: (
        "inputs=rows,n_frequencies=20",
        "inputs=pixels,n_frequencies=10,frequency_min=1,frequency_max=784,size=small",
    ),
    atomic: (
        *atomic.PAPER,
        "task=shift,size=demo",
        "task=cumsum,size=demo",
        "task=mips,model=dss,length=512",
        *(f"task={task},size=small" for task in atomic.TASKS),
        "task=sort,model=dss,n_layers=6,size=small",
        *(f"task={task},n_layers=6,size=short" for task in atomic.SHORT),
        "task=shift,model=dlr_real,size=small",
        "task=shift,size=small,d_state=8",
        "task=cummax,size=narrow,dtype=bfloat16",
    ),
    listops_subtrees: (
        "",
        "model=dss",
        "size=easy",
        "size=small",
        "model=dss,size=small",
    ),
    long_shift: (
        *long_shift.PAPER,
        "model=dlr_prod,phases=coarse_fine",
        "model=dlr_prod,phases=coarse_fine,size=small",
        "model=dlr_prod,phases=comb,size=small",
        *(f"model={name},size=small" for name in ("dss", "sgconv", "dlr_prod")),
        "size=small",
    ),
    pg19: (
        *(
            f"{model}experts={experts}{norm}"
            for model in ("", "model=transformer,")
            for experts in (64, 1)
            for norm in ("", ",norm=post")
        ),
        "",
        "size=small",
        "experts=1,size=small",
        "model=transformer,norm=post,size=small",
    ),
    arena: (
        *arena.PAPER,
        *(f"{cell},size=small" for cell in arena.PAPER),
        "task=listops,model=s4,size=small",
    ),
    speech: ("", "size=small"),
    digits: ("",),
    pixel_mnist: ("", "permuted=true", "size=small", "permuted=true,size=small"),
    listops: (*ARENA, "hyperparameters=code", *BASELINES, *CHANGES),
    text: ARENA,
    retrieval: (*ARENA, *BASELINES[:1]),
    image: ARENA,
    pathfinder_segmentation: (
        *pathfinder_segmentation.PAPER,
        "pixels=64",
        "pixels=64,size=small",
        "pixels=64,model=dss,size=small",
        "pixels=32,size=small",
        "pixels=32,model=patch,size=small",
    ),
    pathfinder: ARENA,
    pathx: (*ARENA, "small_change=true", "model=gate,small_change=true"),
    mixture: (
        "curves=sines,model=fru",
        *(f"curves=poly5,model={name},size=small" for name in UNITS),
    ),
    longssm_text: (
        *(f"model={name},length=16,state_init=carry,size=small" for name in MODELS),
        *(
            f"model=s5,length=16,state_init=zero,order=shuffled,size={size}"
            for size in ("small", "d192", "d768", "d1024")
        ),
        "model=s5,length=16,state_init=noise",
        "model=s5,length=32,state_init=carry,rows=32,size=small",
        "model=dlr,length=128,state_init=zero,size=tiny,dtype=bfloat16",
        "model=mamba,length=16,state_init=zero,size=tiny,d_state=64,weight_decay=0,"
        "steps=1500",
    ),
    beijing: (
        *(f"model={name},size=small" for name in ("s5", "dlr", "ces", "gru")),
        "model=s5",
    ),
    recall: (
        *(f"task=recall,model={name}" for name in get_args(recall.ModelName)),
        "task=recall,model=linear_attention,width=16",
        "task=copying,model=gated_s4d,convolution=none",
        "task=induction,model=mamba2",
    ),
    state_tracking: (
        *(f"task=parity,model={m}" for m in get_args(state_tracking.ModelName)),
        *(f"task={name},model=tanh" for name in ("sum3", "sum5", "a5", "z60")),
        "task=a4xz5,model=gru,elements=two",
        "task=s5,model=gru,convolution=before",
    ),
    language: (
        "dataset=cola,model=transformer,size=small",
        "dataset=mrpc,model=gate,size=small",
        "dataset=imdb",
        *(f"dataset={name},hyperparameters=code" for name in language.FULL),
    ),
}
# The fast tier takes the first variant of each file.
TABLE = [
    pytest.param(
        file,
        variant,
        id=f"{file.__name__.split('.')[-1]}-{variant}",
        marks=() if variant == variants[0] else pytest.mark.full,
    )
    for file, variants in VARIANTS.items()
    for variant in variants
]
each_experiment = pytest.mark.parametrize(("file", "variant"), TABLE)
each_file = pytest.mark.parametrize(
    "file", VARIANTS, ids=lambda file: file.__name__.removeprefix("experiments.")
)


@each_experiment
def test_config_is_named_as_its_file_and_goes_through_json(file, variant):
    config = file.get_config(variant)
    path = file.__name__.removeprefix("experiments.").replace(".", "/")
    assert config.experiment == path
    assert config.variant == variant
    assert differences(from_json(to_json(config)), config) == []


@each_experiment
def test_no_published_figure_stands_beside_a_reduced_run(file, variant):
    if "size=" in variant:
        assert file.get_config(variant).paper is None


@each_experiment
def test_config_builds_and_its_parts_fit(file, variant):
    config = file.get_config(variant)
    task = build(config.task, "config.task")
    model = build(config.model, "config.model")
    optimizer = build(config.optimizer, "config.optimizer")
    training = build(config.training, "config.training")
    d_output = model.encoder.vocabulary if model.head is None else model.head.d_output
    assert d_output == task.spec.d_output
    if file is not pathfinder_segmentation:  # Some published schedules are longer.
        assert optimizer.schedule_steps in (None, training.steps)
    assert training.evaluate_every <= training.steps


def set_to(config, path, value):
    config = copy.deepcopy(config)
    with config.unlocked():
        config.update_from_flattened_dict({path: value})
    return config


def linked_fields(config):
    """The fields that follow another one: ``{(source, follower): new value}``."""
    values, followers = flatten(config), {}
    for path, value in values.items():
        if type(value) is not int or "[" in path:
            continue
        changed = flatten(set_to(config, path, 40 * value + 40))
        for name in values:
            if name != path and changed[name] != values[name]:
                followers[path, name] = changed[name]
    return followers


# Files without a field that follows another.
UNLINKED = (fru_pixel_mnist, frequencies, pathfinder_segmentation, mixture)


@pytest.mark.parametrize(
    ("file", "variant"),
    tiered(
        [(file, variant) for file in VARIANTS for variant in VARIANTS[file]],
        fast=[(file, VARIANTS[file][0]) for file in VARIANTS],
        full=(),
        unpack=True,
    ),
)
def test_linked_fields_are_two_fields(file, variant):
    """Each follows the other until it is set; then both hold, whatever the order."""
    config = file.get_config(variant)
    followers = linked_fields(config)
    if variant == VARIANTS[file][0]:
        assert bool(followers) == (file not in UNLINKED)
    for (source, follower), value in followers.items():
        values = flatten(config)
        source_value, follower_value = 40 * values[source] + 40, value + 1
        changed = set_to(config, follower, follower_value)
        assert flatten(changed) == values | {follower: follower_value}
        for first, second in [
            ((source, source_value), (follower, follower_value)),
            ((follower, follower_value), (source, source_value)),
        ]:
            fields = flatten(set_to(set_to(config, *first), *second))
            assert (fields[source], fields[follower]) == (source_value, follower_value)


def shrunk(config: ConfigDict, data_dir: str) -> ConfigDict:
    """The same experiment at a size that trains in seconds."""
    task, training = config.task, config.training
    small = {"n_train": 20, "n_validation": 10, "n_test": 10}
    if "Pathfinder" not in task.cls:  # It draws what it needs.
        speech_dir = f"{data_dir}/speech"
        small["data_dir"] = speech_dir if "Speech" in task.cls else data_dir
    task.update({name: value for name, value in small.items() if name in task})
    if "length" in task and "block" in config.model:
        task.length = 32
        if "min_length" in task:
            task.update(min_length=8, max_length=32)
    if "Solve" in task.cls:  # Its outputs are counted, those of others are a field.
        config.model.head.l_output = build(task).spec.l_output
    config.optimizer.warmup_steps = 0
    training.update(steps=2, batch_size=8, evaluation_batches=1)
    if "block" not in config.model:
        return config  # One recurrence, small as it is.
    blocks = config.model.block
    blocks = blocks if isinstance(blocks, tuple) else (blocks,)
    config.model.update(n_layers=len(blocks))
    config.model.encoder.d_model = 8
    for block in blocks:
        if "d_hidden" in block.layer:
            block.layer.d_hidden = 8
        recurrence = block.layer.get("recurrence", {})
        small = {"d_state": 4, "blocks": 1, "d_head": 4}
        recurrence.update({name: n for name, n in small.items() if name in recurrence})
    return config


# What differs from these in numbers alone is left out.
STEPS = {
    **{file: ("",) for file in (digits, pixel_mnist, text, retrieval, image)},
    atomic: (
        "task=shift",
        "task=shift,model=dlr_real,size=small",
        *(f"task={task},model=dss" for task in atomic.TASKS if task != "shift"),
    ),
    pathx: ("small_change=true",),
    pg19: VARIANTS[pg19][-3:],
    arena: ("task=retrieval", "task=pathfinder", "task=text,model=s4"),
    speech: ("size=small",),
    listops_subtrees: ("size=small", "model=dss,size=small"),
    long_shift: (
        "model=dlr_prod,phases=coarse_fine,size=small",
        *(f"model={name},size=small" for name in ("dss", "sgconv")),
    ),
    pathfinder_segmentation: (
        *(f"pixels=64,{model}size=small" for model in ("", "model=dss,")),
        "pixels=32,model=patch,size=small",
    ),
    mixture: VARIANTS[mixture],
    longssm_text: VARIANTS[longssm_text][: len(MODELS)],
    imdb: ("model=fru",),
    beijing: ("model=s5,size=small", "model=gru,size=small"),
    fru_pixel_mnist: (
        "inputs=permuted,model=fru",
        "inputs=rows,model=rnn",
        "inputs=pixels,model=fru,size=small",
    ),
    frequencies: ("inputs=rows,n_frequencies=20",),
    recall: VARIANTS[recall],
    state_tracking: VARIANTS[state_tracking],
    listops: ("", "model=gate", *BASELINES, *CHANGES[: len(settings.ABLATIONS)]),
    language: (
        "dataset=cola,model=transformer",
        "dataset=mrpc",
        "dataset=imdb,model=gate",
    ),
}


def describe(leaf):
    return str(leaf.shape), str(leaf.dtype), leaf.weak_type


@pytest.mark.parametrize(
    ("file", "variant"),
    tiered(
        [(file, variant) for file, variants in STEPS.items() for variant in variants],
        fast=[(listops, "")],
        full=[(listops, ""), (imdb, "model=fru")],
        unpack=True,
    ),
)
def test_a_step_fits_the_task(file, variant, sets_dir):
    """In shapes alone: nothing is compiled."""
    config = shrunk(file.get_config(variant), sets_dir)
    task, model = build(config.task), build(config.model)
    batch = task.batch("train", 0, 8, 0)

    def step(batch):
        run, before = create(model, task, build(config.optimizer), seed=0)
        return before, *train_step(run, before, batch)

    before, after, sums = jax.eval_shape(step, batch)
    # Another weak type would compile the second step again.
    chex.assert_trees_all_equal(*(jax.tree.map(describe, s) for s in (before, after)))
    loss = jax.eval_shape(lambda sums: sums["loss"].part_of(sums["loss"]), sums)
    assert loss.shape == ()


# One of each paper first, which the fast tier takes; then one of each file.
LEARNING = [
    (digits, ""),
    (image, "size=small"),
    (mixture, "curves=poly5,model=fru,size=small"),
    (longssm_text, VARIANTS[longssm_text][0]),
    *((file, variants[0]) for file, variants in STEPS.items()),
]

# Part of the first loss that is left of it where it falls slowly, after more steps.
SLOW = {
    **dict.fromkeys((pixel_mnist, text, retrieval, imdb, listops, language), 0.9),
    state_tracking: 0.95,  # Eigenvalues in (0, 1) follow parity for a few bits.
    pathx: 0.99,
    pathfinder_segmentation: 0.96,
}


@pytest.mark.parametrize(
    ("file", "variant"),
    tiered(list(dict.fromkeys(LEARNING)), 0, full=LEARNING[:1], unpack=True),
)
def test_shrunk_experiment_trains(file, variant, sets_dir):
    """The loss of one batch falls by a stated factor when it is trained on alone."""
    config = shrunk(file.get_config(variant), sets_dir)
    rate, n_steps = (0.005, 50) if file in SLOW else (0.02, 30)
    config.optimizer.update(learning_rate=rate, schedule="constant")
    task, model = build(config.task), build(config.model)
    batch = task.batch("train", 0, 8, 0)
    run, state = create(model, task, build(config.optimizer), seed=0)
    step, losses = jax.jit(functools.partial(train_step, run)), []
    for _ in range(n_steps):
        state, sums = step(state, batch)
        losses.append(sums["loss"].compute())
    assert min(losses[-10:]) < SLOW.get(file, 0.65) * losses[0], losses


# The first carries no states, the second does.
TRAINED = [
    (digits, ""),
    (longssm_text, VARIANTS[longssm_text][0]),
    (language, "dataset=mrpc,model=gate"),
    *((file, variants[0]) for file, variants in STEPS.items()),
]


@pytest.mark.parametrize(
    ("file", "variant"),
    tiered(list(dict.fromkeys(TRAINED)), 0, full=1, unpack=True),
)
def test_shrunk_experiment_compiles_each_program_once(
    file, variant, sets_dir, tmp_path
):
    """In two steps and two evaluations of two batches, all of whose numbers exist."""
    config = shrunk(file.get_config(variant), sets_dir)
    config.training.update(evaluate_every=1, evaluation_batches=2)
    with compilations() as counts:
        measured = train(config, str(tmp_path))
    assert measured["step"] == 2
    assert all(math.isfinite(value) for value in measured.values())
    assert counts
    assert not {program: n for program, n in counts.items() if n > 1}


@pytest.mark.full
def test_network_of_one_recurrence_trains_and_is_evaluated(tmp_path):
    config = shrunk(mixture.get_config("curves=poly5,model=rnn,size=small"), "")
    train(config, str(tmp_path))
    assert math.isfinite(evaluate_run(tmp_path)["loss"])


@each_file
def test_unknown_variant_is_one_line_to_the_caller(file, capsys):
    with pytest.raises(SystemExit) as exit, one_line_errors():
        file.get_config("tiny")
    assert exit.value.code == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("error: `variant` must be name=value pairs")
    assert "got 'tiny'" in line


@each_file
def test_unknown_name_of_a_variant_is_refused(file):
    with pytest.raises(ValueError, match="`variant` must have names .* got 'colour'"):
        file.get_config("colour=red")
