"""RAMSIS: model selection per batch, solved in advance as a Markov decision process."""
