"""Retrieval on a set prepared from known pairs."""

from ssm_jax import tasks
from tests.tasks import raw_sets
from tests.tasks.text.test_sentences import SPLITS, decode, whole


def test_pairs_of_papers_are_those_of_the_tables(sets_dir):
    task = tasks.Retrieval(data_dir=sets_dir, length=70)
    first = {"train": 0, "validation": 24, "test": 34}
    for split in SPLITS:
        batch = whole(task, split)
        read = [
            tuple(map(decode, pair, mask))
            for pair, mask in zip(batch.inputs, batch.mask, strict=True)
        ]
        n = task.n_examples(split)
        numbers = range(first[split], first[split] + n)
        pairs = [(raw_sets.sentence(i), raw_sets.sentence(i)[::-1]) for i in numbers]
        labels = dict(zip(pairs, (i % 2 for i in numbers), strict=True))
        assert set(read) == set(pairs) and len(read) == n
        assert batch.targets.tolist() == [labels[pair] for pair in read]
        if split != "train":
            assert read == pairs
