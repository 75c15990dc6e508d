"""Recording kernels and running them backwards: it knows no physics."""
