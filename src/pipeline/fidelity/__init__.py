"""Real serving runs, replayed: how far the simulation is from what was measured."""
