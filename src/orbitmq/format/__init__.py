"""Bytes <-> values on disk: every layout of a RocketMQ store, and kernels over whole buffers. No I/O."""
