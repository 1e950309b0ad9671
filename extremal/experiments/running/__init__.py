"""Trials are computed here: in this process, in processes beside it, or on a Dask cluster."""
