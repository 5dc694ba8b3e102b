"""Wang, LongSSM: what states carried between batches do to length."""
