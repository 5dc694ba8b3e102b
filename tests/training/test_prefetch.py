"""`Prefetch`: the batches of a loop, made by a thread."""

import threading

import pytest

from ssm_jax.training.prefetch import DEPTH, Prefetch


class Source:
    """Makes squares; records what it made, and refuses to be called twice at a time."""

    def __init__(self, bad=None):
        self.made, self.bad = [], bad
        self._busy = threading.Lock()

    def make(self, index):
        assert self._busy.acquire(blocking=False)
        try:
            if index == self.bad:
                raise FileNotFoundError(index)
            self.made.append(index)
            return index**2
        finally:
            self._busy.release()


def test_batches_come_in_order_and_a_few_are_made_ahead():
    source = Source()
    with Prefetch(source.make, range(3, 9)) as batches:
        assert source.made == []
        iterator = iter(batches)
        assert next(iterator) == 9
        batches.wait()
        assert source.made == list(range(3, 4 + DEPTH))
        assert list(iterator) == [16, 25, 36, 49, 64]
    assert source.made == list(range(3, 9))
    assert batches.waited_s > 0


def test_nothing_is_made_between_settling_and_the_next_batch():
    source = Source()
    with Prefetch(source.make, range(9)) as batches:
        for number, _ in enumerate(batches, 1):
            batches.wait()
            assert len(source.made) == min(number + DEPTH, 9)


def test_error_is_raised_where_its_batch_is_due():
    source = Source(bad=2)
    seen = []
    with Prefetch(source.make, range(9)) as batches:
        with pytest.raises(FileNotFoundError, match="2"):
            for batch in batches:
                batches.wait()
                seen.append(batch)
    assert seen == [0, 1]


def test_thread_ends_with_the_context():
    before = threading.active_count()
    with Prefetch(Source().make, range(9)) as batches:
        next(iter(batches))
        assert threading.active_count() == before + 1
    assert threading.active_count() == before
