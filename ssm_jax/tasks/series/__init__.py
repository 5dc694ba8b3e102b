"""Tasks on series in files of the user: CSV, npz and parquet.

`windows` holds `SeriesTask`; `columns` reads the columns of a file, `scaled` normalises
them.
"""
