"""One module for each experiment: `EXPERIMENT`, and `judge`, which makes the sentence from the figures."""
