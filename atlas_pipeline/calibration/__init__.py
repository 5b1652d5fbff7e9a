"""How well did we classify this month: the specification's metrics, the gate, and the report. Counting is the store's."""
