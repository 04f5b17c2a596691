"""RAMSIS: model selection per batch, solved ahead as a Markov decision process."""
