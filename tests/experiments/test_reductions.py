"""What a reduced setting changes is read from the configs."""

from experiments import reductions
from experiments.papers import PAPERS


def table(paper, name):
    return next(each for each in PAPERS[paper].tables if each.name == name)


def test_sizes_of_data_model_and_training_are_told_with_those_of_the_paper():
    names = [
        f"fru/pixel_mnist:inputs=pixels,model={model},size={size}"
        for model, size in (("fru", "small"), ("sru", "small"), ("fru", "quarter"))
    ]
    told = " ".join(reductions.sentence(table("fru", "Table 1"), names).split())
    assert told == (
        "They have `task.size` 14 (at full size 28); `model.recurrence.horizon` 196 "
        "(at full size 784); `training.batch_size` 64 (at full size 256); "
        "`training.steps` 2000 (at full size 21000)."
    )


def test_settings_without_a_published_one_are_not_told():
    names = ["dlr/atomic:task=shift,model=attention,n_layers=2,size=small"]
    assert reductions.sentence(table("dlr", "Table 1"), names) == ""
