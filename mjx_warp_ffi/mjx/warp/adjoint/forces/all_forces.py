"""All forces that need no actuator and no constraint row, but for those of tendons."""

from mjx_warp_ffi.mjx.warp.adjoint.forces import bodies, dofs, fluid, springs
from mjx_warp_ffi.mjx.warp.adjoint.forces.mechanics import Force

# In the order in which they are recorded.
FORCES: tuple[Force, ...] = (bodies.FORCE, dofs.FORCE, springs.FORCE, fluid.FORCE)
