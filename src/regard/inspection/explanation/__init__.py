"""The parts of `explain`: the record, the stages it is computed in, one file per kind of step, and the formats."""
