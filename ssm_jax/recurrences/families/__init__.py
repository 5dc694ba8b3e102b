"""Code that several recurrences share; no recurrence of a paper is here."""
