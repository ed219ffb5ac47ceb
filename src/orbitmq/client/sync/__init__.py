"""The synchronous face of the client: the async objects, run from any thread.

`background_loop` is the loop on which they run and who runs it, `face` makes plain methods of coroutine
methods, `light_future` is what `send_async` returns. `producer`, `admin`, `consumer`, `pull_consumer` are the
classes.
"""
