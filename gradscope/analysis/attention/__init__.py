"""Facts on attention, outputs and routers in the forward, over the captured steps."""
