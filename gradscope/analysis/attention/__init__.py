"""What the forward shows of attention, outputs and routers, over the captured steps."""
