"""Inputs: files as chunks of whole lines. ``Tail`` follows growing ones, ``Whole`` reads finite ones once,
``Piped`` a pipe as it comes."""
