"""Producer: route, send, retry.

`producer.AsyncProducer` is what users see. A message becomes a request and a frame in `send_request`;
`sending` is one on its way, try by try; `send_engine` is what they share: back-pressure, single flight, the
choice of the broker (`faults`). `send_result` is the answer, `unique_id` makes ids.
"""
