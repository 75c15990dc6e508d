"""Cotangents of the pixels at which cameras see sites."""

import warp as wp
from mujoco_warp._src.types import SensorType

from mjx_warp_ffi.mjx.warp.adjoint.kinematics.attachments import Sites, site_arm
from mjx_warp_ffi.mjx.warp.adjoint.kinematics.nodes import Nodes, Tree
from mjx_warp_ffi.mjx.warp.adjoint.outputs import cameras
from mjx_warp_ffi.mjx.warp.adjoint.outputs.cameras import Lenses, Views, focal
from mjx_warp_ffi.mjx.warp.adjoint.outputs.evaluated import Evaluated, Output
from mjx_warp_ffi.mjx.warp.adjoint.sensors.frames import Sensors, make_sensors, weigh
from mjx_warp_ffi.mjx.warp.adjoint.tape.recording import Recording

KIND = SensorType.CAMPROJECTION
_TINY = wp.constant(1.0e-15)


@wp.kernel(module="unique")
def projection_power(
  # In:
  s: Sensors,
  sites: Sites,
  views: Views,
  lens: Lenses,
  tree: Tree,
  nodes: Nodes,
  cot: wp.array2d[float],
  # Out:
  power: wp.array2d[float],
):
  """The pixel at which a camera sees a site, a thread per world and sensor of that kind."""
  world, it = wp.tid()
  k = s.which[it]
  site = s.objid[k]
  camera = s.refid[k]
  x = nodes.xpos[world, tree.of_body[sites.site_bodyid[site]]]
  x = x + site_arm(sites, tree, nodes, world, site)
  v = wp.transpose(views.xmat[world, camera]) @ (x - views.xpos[world, camera])
  f = focal(lens, world, camera)
  middle = wp.vec2(float(lens.resolution[camera][0]), float(lens.resolution[camera][1])) * 0.5
  if wp.abs(v[2]) > _TINY:
    y = wp.vec4(middle[0] - f[0] * v[0] / v[2], middle[1] + f[1] * v[1] / v[2], 0.0, 0.0)
    power[world, it] = weigh(s, world, k, y, cot)


def record(rec: Recording, ev: Evaluated) -> None:
  """Records these sensors."""
  which = rec.sensors((KIND,))
  if not len(which):
    return
  kin = ev.kin
  sensors = make_sensors(rec, ev.mech)(which)
  views = cameras.record_views(rec, kin, ev.mech.inertia)
  inputs = [sensors, kin.sites, views, cameras.make_lenses(rec)]
  inputs += [kin.tree, kin.nodes, rec.cotangents["sensordata"]]
  rec.tape.power(projection_power, (rec.tape.nworld, len(which)), inputs=inputs)


OUTPUT = Output(sensors=(KIND,), record=record)
