"""The serving cluster in SimPy: link, engine, cluster, recorder."""
